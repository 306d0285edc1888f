"""The ratios that datasetrt promises, measured beside what its users would pick instead."""
