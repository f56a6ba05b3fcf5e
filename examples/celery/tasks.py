"""Tasks that keep to a rate, however many workers there are.

    celery --app tasks worker --concurrency 4

Each task asks Tollgate before it works, and waits there, in line, until it is its turn: no loop of
retries, no sleeping, and a task that does not get through goes back to the queue.
"""

import os

import redis
from celery import Celery

QUEUE = "mail"
PATIENCE_MS = 60_000

app = Celery("tasks", broker=os.environ.get("BROKER_URL", "redis://127.0.0.1:6379/0"))
# A worker that dies gives its task back; one that waits does not hoard others.
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)

# The answer may take as long as the task is willing to wait.
tollgate = redis.Redis.from_url(
    os.environ.get("TOLLGATE_URL", "redis://127.0.0.1:6380"),
    socket_timeout=PATIENCE_MS / 1000 + 10,
)


@app.task(bind=True, max_retries=None)
def send_mail(self, number):
    """Sends one mail when the rate of the queue has room for it."""
    allowed, _, wait_ms, _, _ = tollgate.execute_command(
        "TG.CHARGE", "mail", QUEUE, "WAIT", PATIENCE_MS
    )
    if not allowed:
        raise self.retry(countdown=max(wait_ms, 1) / 1000)
    deliver(number)


def deliver(number):
    """Stands for the work: a line in a file, with the time."""
    import time

    with open(os.environ.get("SENT_FILE", "sent.txt"), "a") as sent:
        sent.write(f"{time.time():.6f} {number}\n")
