"""What valgrind's tools have written: a total, and how much of it is whose."""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

# What allocates or copies on behalf of its caller: the caller is who can be changed.
PLUMBING = re.compile(r"<*(&|T as |\[T\] as )?(alloc|core|std|bytes|hashbrown|__rustc)::")
OWN = re.compile(r"\btollgate::")
FRAME = re.compile(r"(?:0x[0-9A-F]+: )?(?P<function>.*?)(?: \([^()]*\))?$")
# libc has one for each kind of processor.
VARIANT = re.compile(r"__(mem[a-z]+|str[a-z]+)_(?:avx|sse|evex|erms)\w*$")


@dataclass
class Profile:
    """Of one measure."""

    total: float = 0
    # The functions whose it is.
    places: Counter = field(default_factory=Counter)

    def a_request(self, requests):
        """The part of one request, where all made this."""
        places = {place: amount / requests for place, amount in self.places.items()}
        return Profile(self.total / requests, Counter(places))

    def beyond(self, other):
        """What this has more than another."""
        places = Counter(self.places)
        places.subtract(other.places)
        return Profile(self.total - other.total, places)


def read_instructions(file, binary):
    """Of a file by callgrind: those that each function of the binary executes itself, and those of
    each function of a library that it calls. Threads are added up.
    """
    profile = Profile()
    program = str(Path(binary).resolve())
    # Where the lines that follow belong; of a call, whose costs are those of all that it leads to.
    library = function = called_library = called = None
    is_call = False
    for line in Path(file).read_text().splitlines():
        key, _equals, value = line.partition("=")
        if key == "ob":
            library = value
        elif key == "fn":
            function = value
        elif key == "cob":
            called_library = value
        elif key == "cfn":
            called = value
        elif key == "calls":
            is_call = True
        elif line[:1].isdigit():
            cost = int(line.split()[-1])
            if library == program and not is_call:
                profile.places[tidy(function)] += cost
            elif library == program and called_library is not None:
                profile.places[f"{tidy(function)} > {tidy(called)}"] += cost
            # It is only named where it is not the caller's.
            is_call, called_library = False, None
        elif line.startswith("summary:"):
            profile.total = int(line.split()[1])
    if not profile.places:
        raise ValueError(f"{file} has no function of {program}")
    return profile


def read_blocks(file):
    """Of a file by DHAT: the number of blocks and that of their bytes, by who asked for them."""
    blocks, size = Profile(), Profile()
    found = json.loads(Path(file).read_text())
    for point in found["pps"]:
        place = asker([FRAME.match(found["ftbl"][frame])["function"] for frame in point["fs"]])
        for profile, amount in ((blocks, point["tbk"]), (size, point["tb"])):
            profile.total += amount
            profile.places[place] += amount
    return blocks, size


def asker(stack):
    """The innermost function that is not plumbing; if it is not ours, also ours that called it."""
    # The first is valgrind's own, in place of libc's.
    callers = [tidy(function) for function in stack[1:]] or stack
    place = next((caller for caller in callers if not PLUMBING.match(caller)), callers[0])
    if OWN.search(place):
        return place
    own = next((caller for caller in callers if OWN.search(caller)), None)
    return f"{place} < {own}" if own else place


def tidy(function):
    """A name that is the same in other builds, and on other machines."""
    if function.startswith("0x"):
        return "(no name)"
    # callgrind numbers the rounds of a recursion.
    function = re.sub(r"'\d+$", "", function)
    # The version of the library is in the names of its functions.
    function = re.sub(r"\baws_lc_\d+_\d+_\d+_", "aws_lc_", function)
    return VARIANT.sub(r"\1", function)
