"""A fault campaign over a running server: rounds of faults, abuse and restarts, and clients that watch every promise.

    python -m tests.server.campaign --rounds 1000 --seed 1

`plan` draws from a seed what will happen; `rounds` makes it happen; `honest` are the clients who must neither lose a
commit nor wait; `abuse` are those who do not behave; `serve` is `muster serve` over files that fail when told to
(`failing_files`). Kills are real kills of a real process, and what is read back is read from real files.
"""
