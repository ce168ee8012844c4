"""`python -m experiments`: all tables, those that say most first."""

from experiments import antialiasing, benchmark, initialisation, mixers, rates, stages

TABLES = (rates.experiment, benchmark.experiment, antialiasing.experiment, initialisation.experiment, stages.experiment, mixers.experiment)

if __name__ == "__main__":
    from experiments.command import main

    main(*TABLES)
