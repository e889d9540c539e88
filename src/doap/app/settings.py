"""Settings of the page: address, limits and models."""

from dataclasses import dataclass

WORK = "work"
"""Name of the queue of events that compute: one at a time, over all tabs and visitors (`concurrency_id`)."""


@dataclass(frozen=True)
class AppSettings:
    """Address, limits and models of the page.

    Attributes:
        host: Address to bind to; by default only this machine reaches the page.
        port: Port of the server; 0 takes a free one.
        device: Device of the models.
        models: Further models to offer: names of baselines, or paths of weights.
        max_upload_bytes: Largest file that is accepted.
        max_request_bytes: Largest upload of several files at once.
        max_pixels: Largest number of pixels of a picture.
        max_side: Largest side of a picture in pixels.
        max_files: Number of uploaded and made files that are kept at a time; further uploads are refused.
        max_parallel_uploads: Number of files that are received at a time.
        upload_seconds: Time in which an upload must be complete.
        file_seconds: Age at which files of visitors are deleted; they are deleted at the end as well.
        max_queue: Number of requests that wait; further ones are refused.
        max_sessions: Number of visitors whose results are kept in memory; the oldest are dropped.
        max_photos: Number of photos of a training.
        learn_seconds: Planned time of a training; one that takes twice as long is cut.
    """

    host: str = "127.0.0.1"
    port: int = 7860
    device: str = "cpu"
    models: tuple[str, ...] = ()
    max_upload_bytes: int = 20_000_000
    max_request_bytes: int = 200_000_000
    max_pixels: int = 40_000_000
    max_side: int = 20_000
    max_files: int = 400
    max_parallel_uploads: int = 8
    upload_seconds: float = 60.0
    file_seconds: int = 1800
    max_queue: int = 24
    max_sessions: int = 16
    max_photos: int = 30
    learn_seconds: float = 60.0
