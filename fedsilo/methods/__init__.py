"""One file per method: a declaration without torch, a server half and a silo half.

`method` defines what a method is and `interface` what its halves receive and return; `registry` binds a method to a
job, `checks` finds what of a job a method is not made for, `reading` what a server half may read, and
`components` holds what several methods share. A large method is a folder of `declaration`, `server` and `silo`.
README.md shows a complete one.
"""
