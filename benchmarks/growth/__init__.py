"""How the time and the memory of every operation grow with what a dataset holds."""
