"""Questions about a pipeline far from built, against `python -c pass`: what it needs, and what it would run."""

from __future__ import annotations

from measure import MARIN, PYTHON, ROOT, median, run, verdict

TARGET = "//exp:dclm_1b"


def main() -> None:
    bare = median([PYTHON, "-c", "pass"], ROOT)
    query = median([MARIN, "query", f"deps({TARGET})"], ROOT)
    run([MARIN, "build", "-n", TARGET], ROOT)
    plan = median([MARIN, "build", "-n", TARGET], ROOT)
    print(f"python -c pass                      {bare}")
    print(f"marin query 'deps({TARGET})'  {query}  ({query.wall / bare.wall:.1f} x)")
    print(f"marin build -n {TARGET}       {plan}  ({plan.wall / bare.wall:.1f} x)")
    verdict("query: more than a bare Python", query.wall - bare.wall, 1.5)
    verdict("plan: more than a bare Python", plan.wall - bare.wall, 1)


if __name__ == "__main__":
    main()
