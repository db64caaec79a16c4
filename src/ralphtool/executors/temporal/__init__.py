"""Iterations on other machines, through a Temporal server: the loop's side, the workers' side, a development server.

Each job is a *standalone activity*: an activity that a client starts, without a workflow around it. It is a public
preview in temporalio 1.35 and server 1.32, and needs no setting. Tested with both, including kills of either side:

- Starting a job with the same id again returns the existing one, whether it waits, runs or has ended.
- While it runs, a client can read its state, worker, attempt and newest heartbeat details.
- A restarted client finds the job, and its result, by the id.
- A server that was killed and restarted has lost nothing.
- A worker that was killed, or hangs for too long, is replaced after the heartbeat timeout. If it comes back, its next
  heartbeat shows that the job is no longer its own, and its result is refused.
- A cancelled job that no worker has taken ends at once; a running one gets the cancellation with its next heartbeat.

What must be handled here:

- The library tries to deliver a result for six seconds and then drops it, whatever the settings. `serving` delivers it
  itself.
- A worker that hangs with a free slot is still in the queue, and may get the second try too: so it asks for one job at
  a time, and a job is tried three times.
- A server that was away for longer than the heartbeat timeout gives a job to another worker when it is back, although
  the first one is well. So that timeout is also how long a server may be away without work being done twice.

So a workflow would add only its history.

temporalio is imported where it is used: it is an optional dependency, and takes half a second to load.
"""
