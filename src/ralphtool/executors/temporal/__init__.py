"""Iterations on other machines, handed out by a Temporal server: the loop's side, the workers' side, a server to try.

Each job is a *standalone activity*: an activity that a client starts, without a workflow around it. A public preview of
temporalio 1.35 and of server 1.32; the server needs no setting for it. Tried with both, and with kills of either side:

- The same id again gives the job that is there, whether it waits, runs or has ended.
- While it runs a client reads its state, its worker, its attempt and the newest details of its heartbeat.
- A client that was started anew finds it, and its result, by the id.
- A server that was killed and started anew has lost nothing.
- A worker that was killed, or hangs for too long, is replaced after the heartbeat timeout. One that comes back learns
  with its next heartbeat that the job is not its own any more, and its result is refused.
- A cancelled job that nobody has taken ends at once; one that runs is told with its next heartbeat.

What has to be done here:

- The library delivers a result for six seconds and then drops it, whatever it is told. `serving` delivers it itself.
- A worker that hangs with a free slot still stands in the queue, and may be given the second try as well: it asks for
  one job at a time, and a job is tried three times.
- A server that was away for longer than the heartbeat timeout gives a job away when it is back, though its worker is
  well. So that timeout is also how long a server may be away without work being done twice.

So a workflow would add nothing but its history.

temporalio is imported where it is used: it is an extra, and takes half a second.
"""
