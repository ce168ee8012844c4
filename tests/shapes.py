"""The checker of shapes and types that pytest switches on for the package: as PEP 484 has it, an int may stand where a float is asked for."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
