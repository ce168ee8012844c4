"""The checker of shapes and types that pytest switches on for the package. As PEP 484 has it, an int may stand for a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
