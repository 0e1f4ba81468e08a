"""The tables of papers, rerun: every row a method, every column a dataset, its partition and a network, every cell a
job.
"""
