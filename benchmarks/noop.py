"""A build with nothing to do, against `python -c pass`. Builds //exp:tiny_eval first if need be."""

from __future__ import annotations

from measure import MARIN, PYTHON, ROOT, median, run, verdict


def main() -> None:
    run([MARIN, "build", "//exp:tiny_eval"], ROOT)
    bare = median([PYTHON, "-c", "pass"], ROOT)
    noop = median([MARIN, "build", "//exp:tiny_eval"], ROOT)
    print(f"python -c pass                {bare}")
    print(f"marin build //exp:tiny_eval   {noop}  ({noop.wall / bare.wall:.1f} x)")
    verdict("more than a bare Python", noop.wall - bare.wall, 0.4)


if __name__ == "__main__":
    main()
