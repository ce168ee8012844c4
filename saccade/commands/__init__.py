"""ONE PLAIN FUNCTION PER COMMAND: its signature is the options, its docstring the help."""
