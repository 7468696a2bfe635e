"""The command line: ``aioproducer VERB ...``, a module for each verb."""
