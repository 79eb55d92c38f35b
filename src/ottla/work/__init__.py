"""Work on records that takes long: in threads or tasks, in order by key, without losing the group.

Worker       a function in threads, for a Consumer
AsyncWorker  a coroutine function in tasks, for a consumer of `ottla.aio`
ShareWorker  a function in threads, for a ShareConsumer
Retry        retry topics and dead letters of the first two; a share group redelivers by itself
"""

from ottla.work.asyncio_worker import AsyncWorker
from ottla.work.retry import Retry
from ottla.work.share_worker import ShareWorker
from ottla.work.worker import Worker

__all__ = ["AsyncWorker", "Retry", "ShareWorker", "Worker"]
