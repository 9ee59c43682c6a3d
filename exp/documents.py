"""JSON lines, one document a line."""

import json


def read_documents(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_document(out, document):
    out.write(json.dumps(document, ensure_ascii=False) + "\n")
