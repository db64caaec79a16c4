"""Iterations on other machines, handed out by a Temporal server: the loop's side, the workers' side, a server to try.

Each job is a *standalone activity*: an activity that a client starts, without a workflow around it. A public preview of
temporalio 1.35 and of server 1.32; the server needs no setting for it. Tried with both, and with kills of either side:

- The same id again gives the job that is there, whether it waits, runs or has ended.
- While it runs a client reads its state, its worker, its attempt and the newest details of its heartbeat.
- A client that was started anew finds it, and its result, by the id.
- A server that was killed and started anew has lost nothing.
- A worker that was killed, or stopped for too long, is replaced after the heartbeat timeout. A worker that comes back
  learns with its next heartbeat that the job is not its own any more, and its result is refused.
- A cancelled job that nobody has taken ends at once; one that runs is told with its next heartbeat.

So a workflow would add nothing but its history.

temporalio is imported where it is used: it is an extra, and takes half a second.
"""
