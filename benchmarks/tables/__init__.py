"""The papers' tables: every row a method, every column a dataset, its partition and a network, every cell a job."""
