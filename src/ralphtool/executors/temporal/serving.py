"""The worker's side: takes jobs from the queue and has each carried out in a thread of its own.

A server that is away ends nothing here: a job goes on, and its result is delivered when the server is back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from ralphtool.executors.temporal.connecting import ACTIVITY, MOST_BYTES, connect, require_temporal
from ralphtool.settings.executor import ExecutorSettings

if TYPE_CHECKING:
    from temporalio.worker import Worker

_BEAT = 0.5  # seconds; the library sends at most one a second
_THROTTLE = timedelta(seconds=1)
_LOOK = 0.1  # seconds between two looks at `stop`
_LEAVE = 10.0  # seconds that the last results have to reach the server, when a worker stops

WhyEnd = Literal["", "cancelled", "stopping", "lost"]


class JobRefused(Exception):
    """The job fails, and nobody shall try it again."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class JobRetry(JobRefused):
    """The job fails here; another try may go better."""


class JobEnded(Exception):
    """The job was ended as it was asked to, and there is no result."""


class JobContext:
    """A job while it is carried out. Any thread may use it."""

    def __init__(self, id: str, attempt: int) -> None:
        self.id = id
        self.attempt = attempt
        self.details = b""
        self.why_end: WhyEnd = ""

    def must_end(self) -> bool:
        """Whether the loop has cancelled it, the worker is stopping, or the server has given it to somebody else."""
        return self.why_end != ""

    def beat(self, details: bytes) -> None:
        """What the loop shall see next, within two seconds. Only the newest is sent."""
        if len(details) > MOST_BYTES:
            raise ValueError(f"a heartbeat of {len(details)} bytes: {MOST_BYTES} is the most")
        self.details = details

    def end(self, why: WhyEnd) -> None:
        """The first reason stays, except that a job which is lost is lost."""
        if not self.why_end or why == "lost":
            self.why_end = why


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
    """Works until `stop` is set. Then it takes no new job, asks those that run to end, and waits for them.

    Raises RemoteFailed if the server can't be reached at the start.
    """
    require_temporal()
    # It would print a trace for every job that fails, whatever for. The loop is told, and tells.
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    with ThreadPoolExecutor(slots, thread_name_prefix="job") as pool:
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

    async def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        worker = await self._build_worker()
        running = asyncio.create_task(worker.run())
        while not worker.is_running and not running.done():
            await asyncio.sleep(_LOOK)
        ready()
        while not stop.is_set() and not running.done():
            await asyncio.sleep(_LOOK)
        self.stopping = True
        for job in self.jobs:
            job.end("stopping")
        await self._leave(worker, running)

    async def _build_worker(self) -> Worker:
        from temporalio.service import RetryConfig
        from temporalio.worker import Worker

        # A result that can't be delivered is work lost, so it is tried for as long as the worker lives.
        retry = RetryConfig(max_interval_millis=1000, max_elapsed_time_millis=None, max_retries=10**9)
        return Worker(
            await connect(self.settings, identity=self.identity, retry=retry),
            task_queue=self.settings.queue,
            activities=[self._build_activity()],
            identity=self.identity,
            max_concurrent_activities=self.slots,
            max_heartbeat_throttle_interval=_THROTTLE,
            default_heartbeat_throttle_interval=_THROTTLE,
        )

    async def _leave(self, worker: Worker, running: asyncio.Task[None]) -> None:
        leaving = asyncio.gather(worker.shutdown(), running)
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
                return await self._attend(job, payload)
            finally:
                self.jobs.discard(job)

        return activity.defn(name=ACTIVITY)(iterate)

    async def _attend(self, job: JobContext, payload: bytes) -> bytes:
        """Beats while the job's thread works; only the thread's end ends it."""
        from temporalio import activity

        if self.stopping:
            raise _build_failure("stopping", "the worker is stopping", retry=True)
        work = asyncio.get_running_loop().run_in_executor(self.pool, _carry_out_safely, self.carry_out, job, payload)
        while not work.done():
            activity.heartbeat(job.attempt, job.details)
            try:
                await asyncio.wait([work], timeout=_BEAT)
            except asyncio.CancelledError:
                job.end(_name_reason())
        result = work.result()
        if isinstance(result, bytes):
            return result
        raise result


def _name_reason() -> WhyEnd:
    from temporalio import activity

    told = activity.cancellation_details()
    if told is None or told.worker_shutdown:
        return "stopping"
    return "cancelled" if told.cancel_requested else "lost"


def _carry_out_safely(carry_out: CarryOut, job: JobContext, payload: bytes) -> bytes | BaseException:
    """The result, or the failure that the server is told. A bug of ours would be one on every machine."""
    try:
        result = carry_out(job, payload)
    except JobRefused as error:
        return _build_failure(error.kind, error.text, retry=isinstance(error, JobRetry))
    except JobEnded:
        return _describe_end(job)
    except Exception as error:
        return _build_failure("bug", traceback.format_exception_only(error)[-1].strip(), retry=False)
    if len(result) > MOST_BYTES:
        return _build_failure("bug", f"a result of {len(result)} bytes: {MOST_BYTES} is the most", retry=False)
    return result


def _describe_end(job: JobContext) -> BaseException:
    if job.why_end == "cancelled":
        return asyncio.CancelledError()
    return _build_failure(job.why_end or "ended", "the job was ended before it was done", retry=job.why_end != "")


def _build_failure(kind: str, text: str, *, retry: bool) -> BaseException:
    from temporalio.exceptions import ApplicationError

    return ApplicationError(text, type=kind, non_retryable=not retry)
