"""Datasets and benchmark partitions: from a silo's `DatasetSpec` to checked arrays.

`catalogue` says what a manifest may write and imports nothing heavy; `loaders` reads and checks; `partitions`
divides one public dataset over silos as the methods' papers do; `split` sets validation data aside.
"""
