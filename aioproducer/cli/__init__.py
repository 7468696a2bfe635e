"""The command line: ``aioproducer VERB ...``, a module or a folder for each verb."""
