"""Files on disks that may be full, torn, or somebody else's: written whole, read with care, held by one process.

`plain_files` opens files of bounded size under names that somebody else may have given to something else, `durable`
has the verbs by which files survive a crash, `json_files` JSON with a digest of itself, `digests` the hashes of large
content, `early_writing` writes ahead of the sync, `full_disk` waits for space, `locking` keeps a directory for one
process.
"""
