"""
The command line: thin verbs over a registry.

Results go to stdout and nothing else does; stderr has error lines, a progress bar where it is a
terminal, and with ``--verbose`` the log.
"""
