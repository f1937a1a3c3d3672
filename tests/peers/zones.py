"""Prints every zone of the PyPI package tzdata with its changes of offset, as the standard library applies them.

A line is the zone's name, its offset at the first instant, and `second:offset` for each change until the last one.
"""

import datetime
import sys
import zoneinfo

import tzdata

FIRST, LAST, STEP = (int(word) for word in sys.argv[1:4])


def main():
    print(tzdata.IANA_VERSION)
    # The package contains this list for users who can't list its files.
    with open(tzdata.__path__[0] + "/zones", encoding="ascii") as zones:
        names = sorted(zones.read().split())
    for name in names:
        zone = zoneinfo.ZoneInfo(name)

        def offset(second):
            at = datetime.datetime.fromtimestamp(second, datetime.timezone.utc).astimezone(zone)
            return int(at.utcoffset().total_seconds())

        line = [name, str(offset(FIRST))]
        for low in range(FIRST, LAST, STEP):
            before, high = low, low + STEP
            if offset(before) == offset(high):
                continue
            while high - before > 1:
                middle = (before + high) // 2
                if offset(middle) == offset(low):
                    before = middle
                else:
                    high = middle
            line.append(f"{high}:{offset(high)}")
        print(" ".join(line))


main()
