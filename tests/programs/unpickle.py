#!/usr/bin/python3
"""unpickle.py DIRECTORY FILE: the pickles in it as one JSON object, by their names."""
import json, os, pickle, sys

directory, target = sys.argv[1:]
values = {}
for name in os.listdir(directory):
    with open(os.path.join(directory, name), "rb") as file:
        values[name] = pickle.load(file)
with open(target, "w") as file:
    json.dump(values, file)
