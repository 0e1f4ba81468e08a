"""The cluster behind seven verbs; tests run one suite over the real one and over a fake."""
