"""The costs of a request as a file, which is kept, and what has changed since."""

from dataclasses import dataclass, field
from pathlib import Path

from profiles import Profile

# A figure that has risen by more is told.
TOLERATED = 0.02
# Functions with less of a total are left out of the file: none of them makes a rise that is told.
LEAST_SHARE = 0.002
# How many functions a warning names.
NAMED = 3
TOTAL = "total"


@dataclass
class Figures:
    """What was measured, and with what."""

    # Compilers, libraries and processors differ in what the same source costs.
    tools: str = ""
    # The profile of one request, by workload and measure.
    profiles: dict = field(default_factory=dict)


def read(file):
    """The figures of a file; none if there is no file."""
    figures = Figures()
    if not Path(file).exists():
        return figures
    for line in Path(file).read_text().splitlines():
        if line.startswith("# with "):
            figures.tools = line.removeprefix("# with ")
        elif not line.startswith("#"):
            workload, measure, amount, place = line.split("\t")
            profile = figures.profiles.setdefault((workload, measure), Profile())
            if place == TOTAL:
                profile.total = float(amount)
            else:
                profile.places[place] = float(amount)
    return figures


def write(figures, file):
    """One line for a total, then one for each function with a part of it."""
    lines = [
        "# What a request costs, in all and by function: tests/bench/instructions.sh makes this.",
        f"# with {figures.tools}",
    ]
    for (workload, measure), profile in figures.profiles.items():
        lines.append(f"{workload}\t{measure}\t{profile.total:.2f}\t{TOTAL}")
        for place, amount in profile.places.most_common():
            if amount > LEAST_SHARE * profile.total:
                lines.append(f"{workload}\t{measure}\t{amount:.2f}\t{place}")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text("".join(f"{line}\n" for line in lines))


def table(now, kept):
    """Each total beside the one that was kept."""
    lines = [f"{'':4}{'a request':18}{'now':>10}{'kept':>10}  change"]
    for (workload, measure), profile in now.profiles.items():
        line = f"{workload:4}{measure:18}{number(profile.total):>10}"
        before = kept.profiles.get((workload, measure))
        if before is not None:
            line += f"{number(before.total):>10}  {rise(before, profile):+.1%}"
        lines.append(line)
    return lines


def remarks(now, kept):
    """What is to be said about the changes: a warning for each rise that is not tolerated."""
    if not kept.profiles:
        return ["not compared: nothing was kept, which --keep does"]
    if now.tools != kept.tools:
        return [
            "not compared: other tools count differently",
            f"    now  {now.tools}",
            f"    kept {kept.tools}",
        ]
    lines, fallen = [], []
    for key, profile in now.profiles.items():
        name, before = " ".join(key), kept.profiles.get(key, Profile())
        change = rise(before, profile)
        if change > TOLERATED:
            lines.append(
                f"warning: {name}: {number(profile.total)} a request, {change:.1%} more than"
                f" {number(before.total)}; the most in {places(before, profile)}"
            )
        elif change < -TOLERATED:
            fallen.append(name)
    if fallen:
        lines.append(f"less than was kept, so that --keep is due: {', '.join(fallen)}")
    return lines or [f"nothing has risen by more than {TOLERATED:.0%}"]


def rise(before, now):
    """By what part of the former total."""
    if before.total == 0:
        return float(now.total > 0)
    return now.total / before.total - 1


def places(before, now):
    """The functions whose own part has risen most."""
    risen = now.beyond(before).places.most_common(NAMED)
    # A rise by less may be of a function that was left out of the file.
    least = LEAST_SHARE * now.total
    named = [f"{place} (+{number(amount)})" for place, amount in risen if amount > least]
    return ", ".join(named) or "many functions, a little in each"


def number(amount):
    """A request makes a few allocations, which may not be rounded, and many instructions."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"
