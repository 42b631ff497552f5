"""Real servers and clients with a CPU-bound thread inside: how they are started, loaded and ended.

What benchmarks/servers measures with, and tests/test_servers.py checks answers with.
"""
