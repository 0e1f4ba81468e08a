"""The cluster behind eight verbs; tests run one suite over the real one and over a fake."""
