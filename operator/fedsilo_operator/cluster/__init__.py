"""The cluster, behind seven verbs; a fake stands beside the real one and one suite of tests runs over both."""
