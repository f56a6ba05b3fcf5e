"""Counters on disk that cannot be read for a while: their limits do as their `on_store_error` says,
and no counter is a fresh one."""

from broken import COST, KEPT, TIMES, Account
from store import Asker, standings_of

# Calls that make tables of several blocks. New keys read some of them, as it is not known yet at a start
# which keys are on disk: of so many counters, some are in another block, wherever their hashes put them.
FILLERS = 100
CANDIDATES = 32


def try_read_faults(site):
    """A counter that is on disk cannot be read."""
    for name, rule in (
        ("an error of a read", "read EIO name=tables"),
        ("short reads", "read short=50 name=tables"),
    ):
        with site.proxy() as (proxy, faults):
            proxy.start()
            with Asker(proxy.port) as asker:
                for number in range(FILLERS):
                    asker.charge(*(("open", f"filler-{number}-{it}", 1) for it in range(8)))
                accounts = {
                    limit: [Account(asker, key=f"cold-{it}-{limit}") for it in range(CANDIDATES)]
                    for limit in KEPT
                }
                for limit, candidates in accounts.items():
                    for account in candidates:
                        account.expect(limit, 200)
            proxy.stop()
            made = proxy.store("compact", "--path", proxy.counters)
            problems = [] if made.returncode == 0 else [made.stderr]
            site.report.check(f"{name}: tables can be made", problems)
            # So long it does not look through the tables, which would leave all of them in memory.
            proxy.disk["flush"] = "60s"
            proxy.start()
            with Asker(proxy.port) as asker:
                try_unreadable(site, name, proxy, accounts, asker, faults, rule)
            proxy.stop()
            proxy.start()
            problems = []
            with Asker(proxy.port) as asker:
                for limit, candidates in accounts.items():
                    for account in candidates:
                        account.asker = asker
                        account.compare(asker, [limit])
                        problems += account.take_problems()
            site.report.check(f"{name}: a restart has the right counts", problems)


def unreadable(proxy, asker, limit, candidates):
    """The first account in a part of the tables that was not read yet: it was charged once."""
    errors = lambda: proxy.metric("tollgate_store_disk_read_errors_total")
    for account in candidates:
        account.asker = asker
        before = errors()
        status, content = asker.charge((limit, account.key, COST))
        if errors() > before:
            return account
        account.used[limit] += COST
        if (status, standings_of(content).get(limit, (None,))[0]) != (200, account.used[limit]):
            text = f"{status}, {content} instead of {account.used[limit]}"
            account.problems.append(f"{limit}: {text}")
    raise RuntimeError("all parts of the tables were read already")


def try_unreadable(site, name, proxy, accounts, asker, faults, rule):
    """During a fault of reads, and after it."""
    check = lambda what, problems: site.report.check(f"{name}: {what}", problems)
    warm = Account(asker, key="warm")
    for limit in KEPT:
        warm.expect(limit, 200)
    faults.begin(rule)
    closed, passing, local = (
        unreadable(proxy, asker, limit, accounts[limit]) for limit in ("closed", "open", "local")
    )
    closed.expect("closed", 503)
    check("`closed` is 503", closed.take_problems())
    passing.expect("open", 200, counts=False)
    check("`open` passes", passing.take_problems())
    admitted = [asker.charge(("local", local.key, COST))[0] for _ in range(TIMES)]
    check("`local` is decided in the process", [] if set(admitted) == {200} else [f"{admitted}"])
    status, content = asker.standing("closed", closed.key)
    used = standings_of(content).get("closed", (None,))[0]
    is_fresh = used not in (None, closed.used["closed"])
    check("no fresh window", [f"{status}: {used} used"] if is_fresh else [])
    for limit in (*KEPT, "quick"):
        warm.expect(limit, 200, counts=limit != "quick")
    check("counters in memory go on", warm.take_problems())
    errors = proxy.metric("tollgate_store_disk_read_errors_total")
    check("the metric counts it", [] if errors else [f"{errors}"])
    told = proxy.has_logged("cannot be read from disk", "tables", "error=")
    check("the log names file and error", [] if told else ["it does not"])
    check("there were faults", [] if faults.count() else ["none"])
    check("it does not die", [] if proxy.is_running() else ["it did"])

    faults.end()
    closed.expect("closed", 200)
    passing.expect("open", 200)
    # What was admitted meanwhile is counted, too.
    local.used["local"] += COST * (1 + admitted.count(200))
    local.expect("local", 200)
    check("counting goes on by itself", closed.take_problems() + passing.take_problems())
    check("what was decided in the process is counted", local.take_problems())


def run(site):
    """All of them."""
    if site.library:
        try_read_faults(site)
