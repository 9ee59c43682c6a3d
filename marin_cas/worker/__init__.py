"""The program that runs one action anywhere: materialise, run the tool in a clean process, check, ingest, publish."""
