"""With the connector, an institution's own cluster follows its hub, by requests that go out only."""
