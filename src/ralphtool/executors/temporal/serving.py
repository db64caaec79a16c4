"""The worker's side: takes jobs from the queue and carries out each in a separate thread.

If the server is away, nothing ends here: a job continues, and its result is delivered when the server is back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from ralphtool.executors.temporal.connecting import (
    ACTIVITY,
    MOST_BYTES,
    connect,
    is_away,
    name_queue,
    require_temporal,
)
from ralphtool.settings.executor import ExecutorSettings

if TYPE_CHECKING:
    from temporalio.client import AsyncActivityHandle, Client
    from temporalio.worker import Worker

_BEAT = 0.5  # seconds; the library sends at most one a second
_THROTTLE = timedelta(seconds=1)
_LOOK = 0.1  # seconds between two checks of `stop`
_PAUSE = 1.0  # seconds between two tries to deliver a result
_LAST_TRIES = 10  # to deliver it, if the worker is stopping
_ANSWER = timedelta(seconds=10)
_LEAVE = 10.0  # seconds that disconnecting from the server may take

WhyEnd = Literal["", "cancelled", "stopping", "lost"]


class JobRefused(Exception):
    """The job fails, and must not be tried again."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class JobRetry(JobRefused):
    """The job fails here; another try may succeed."""


class JobEnded(Exception):
    """The job was ended as requested, and there is no result."""


class JobContext:
    """A job while it is carried out. Any thread may use it."""

    def __init__(self, id: str, attempt: int) -> None:
        self.id = id
        self.attempt = attempt
        self.details = b""
        self.why_end: WhyEnd = ""

    def must_end(self) -> bool:
        """Whether the loop has cancelled it, the worker is stopping, or the server has given it to another worker."""
        return self.why_end != ""

    def beat(self, details: bytes) -> None:
        """Sets the details that the loop sees next, within two seconds. Only the newest are sent."""
        if len(details) > MOST_BYTES:
            raise ValueError(f"a heartbeat of {len(details)} bytes is too big: the maximum is {MOST_BYTES}")
        self.details = details

    def end(self, why: WhyEnd) -> None:
        """The first reason stays, except that `lost` replaces any other."""
        if not self.why_end or why == "lost":
            self.why_end = why


Result = bytes | Exception | asyncio.CancelledError
CarryOut = Callable[[JobContext, bytes], bytes]


def serve(
    settings: ExecutorSettings,
    *,
    slots: int,
    identity: str,
    carry_out: CarryOut,
    stop: threading.Event,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Works until `stop` is set. Then it takes no new jobs, asks running ones to end, and waits for them.

    Raises RemoteFailed if the server can't be reached at the start.
    """
    require_temporal()
    # It would print a trace for every job that fails, for whatever reason. The loop gets the failure, and reports it.
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    # Work that began here is proven here, alongside new work, just as a local lane keeps its box until then.
    with ThreadPoolExecutor(2 * slots, thread_name_prefix="job") as pool:
        serving = _Serving(settings, slots, identity, carry_out, pool)
        asyncio.run(serving.run(stop, ready))


class _Serving:
    def __init__(
        self, settings: ExecutorSettings, slots: int, identity: str, carry_out: CarryOut, pool: ThreadPoolExecutor
    ) -> None:
        self.settings = settings
        self.slots = slots
        self.identity = identity
        self.carry_out = carry_out
        self.pool = pool
        self.jobs: set[JobContext] = set()
        self.stopping = False
        self.client: Client

    async def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        self.client = await connect(self.settings, identity=self.identity)
        workers = [self._build_worker(name_queue(self.settings, name)) for name in ("", self.identity)]
        running = asyncio.gather(*(worker.run() for worker in workers))
        while not all(worker.is_running for worker in workers) and not running.done():
            await asyncio.sleep(_LOOK)
        ready()
        while not stop.is_set() and not running.done():
            await asyncio.sleep(_LOOK)
        self.stopping = True
        for job in self.jobs:
            job.end("stopping")
        await self._leave(workers, running)

    def _build_worker(self, queue: str) -> Worker:
        from temporalio.worker import Worker

        return Worker(
            self.client,
            task_queue=queue,
            activities=[self._build_activity()],
            identity=self.identity,
            max_concurrent_activities=self.slots,
            # A worker that hangs gets at most one job that it does not begin.
            max_concurrent_activity_task_polls=1,
            max_heartbeat_throttle_interval=_THROTTLE,
            default_heartbeat_throttle_interval=_THROTTLE,
        )

    async def _leave(self, workers: Sequence[Worker], running: asyncio.Future[list[None]]) -> None:
        leaving = asyncio.gather(*(worker.shutdown() for worker in workers), running)
        while self.jobs and not leaving.done():
            await asyncio.sleep(_LOOK)
        await asyncio.wait([leaving], timeout=_LEAVE)
        if leaving.done():
            await leaving

    def _build_activity(self) -> Callable[[bytes], Awaitable[bytes]]:
        from temporalio import activity

        async def iterate(payload: bytes) -> bytes:
            info = activity.info()
            job = JobContext(info.activity_id, info.attempt)
            self.jobs.add(job)
            try:
                await self._attend(job, asyncio.ensure_future(self._work(job, payload, info.task_token)))
            finally:
                self.jobs.discard(job)
            activity.raise_complete_async()  # the result is already delivered

        return activity.defn(name=ACTIVITY)(iterate)

    async def _attend(self, job: JobContext, work: asyncio.Future[None]) -> None:
        """Sends heartbeats until the work is done; nothing else ends it."""
        from temporalio import activity

        while not work.done():
            activity.heartbeat(job.attempt, job.details)
            try:
                await asyncio.wait([work], timeout=_BEAT)
            except asyncio.CancelledError:
                job.end(_name_reason())
        work.result()

    async def _work(self, job: JobContext, payload: bytes, token: bytes) -> None:
        if not await self._is_ours(job):
            job.end("lost")
            return
        if self.stopping:
            result: Result = _build_failure("stopping", "the worker is stopping", retry=True)
        else:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self.pool, _carry_out_safely, self.carry_out, job, payload)
        await self._deliver(self.client.get_async_activity_handle(task_token=token), result)

    async def _is_ours(self, job: JobContext) -> bool:
        """A worker that hung may get a job that was meanwhile given to another one: then no agent is started."""
        from temporalio.service import RPCError

        try:
            told = await self.client.get_activity_handle(job.id).describe(rpc_timeout=_ANSWER)
        except RPCError as error:
            return is_away(error)
        return told.attempt == job.attempt and told.close_time is None

    async def _deliver(self, handle: AsyncActivityHandle, result: Result) -> None:
        """Retries until the server has it. The library would give up after six seconds, and the work would be lost."""
        from temporalio.service import RPCError
        from temporalio.service import RPCStatusCode as Code

        tries = 0
        while tries < _LAST_TRIES:
            try:
                return await _send(handle, result)
            except RPCError as error:
                if error.status in (Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION):
                    return None  # the job is no longer this worker's
            tries += self.stopping
            await asyncio.sleep(_PAUSE)
        return None


async def _send(handle: AsyncActivityHandle, result: Result) -> None:
    if isinstance(result, bytes):
        await handle.complete(result, rpc_timeout=_ANSWER)
    elif isinstance(result, asyncio.CancelledError):
        await handle.report_cancellation(rpc_timeout=_ANSWER)
    else:
        await handle.fail(result, rpc_timeout=_ANSWER)


def _name_reason() -> WhyEnd:
    from temporalio import activity

    told = activity.cancellation_details()
    if told is None or told.worker_shutdown:
        return "stopping"
    return "cancelled" if told.cancel_requested else "lost"


def _carry_out_safely(carry_out: CarryOut, job: JobContext, payload: bytes) -> Result:
    """The result, or the failure for the server. A bug is not retried: it would occur on every machine."""
    try:
        result = carry_out(job, payload)
    except JobRefused as error:
        return _build_failure(error.kind, error.text, retry=isinstance(error, JobRetry))
    except JobEnded:
        return _describe_end(job)
    except Exception as error:
        return _build_failure("bug", "".join(traceback.format_exception_only(error)).strip(), retry=False)
    if len(result) > MOST_BYTES:
        return _build_failure(
            "bug", (f"a result of {len(result)} bytes is too big: the maximum is {MOST_BYTES}"), retry=False
        )
    return result


def _describe_end(job: JobContext) -> Result:
    if job.why_end == "cancelled":
        return asyncio.CancelledError()
    return _build_failure(job.why_end or "ended", "the job was stopped before it was done", retry=job.why_end != "")


def _build_failure(kind: str, text: str, *, retry: bool) -> Exception:
    from temporalio.exceptions import ApplicationError

    return ApplicationError(text, type=kind, non_retryable=not retry)
