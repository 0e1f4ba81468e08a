"""What every process that speaks HTTP shares: sockets, large bodies, refusals, probes and the log.

`listener` bounds how many connections anyone may hold, `large_body` and `threads` carry large bodies past aiohttp,
`refusals` are problem documents, `probes` answer monitors, `log` has one line for what is no request.
"""
