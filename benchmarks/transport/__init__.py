"""What a round costs beside raw sockets: real aggregator and guards over HTTPS, trainers that answer at once."""
