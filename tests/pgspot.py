#!/usr/bin/env python3
"""Prints an install script in a form that pgspot 0.9.4 can read.

pgspot looks for the body of a function in its AS clause and stops at a function with a body after BEGIN ATOMIC. Such a
body is bound when the function is created, under the search path of the script, so it is checked as what it is: as
statements of the script.
"""
import re
import sys

ATOMIC = re.compile(r"(CREATE\s+FUNCTION(?:(?!;\n).)*?)LANGUAGE\s+sql\b((?:(?!;\n).)*?)BEGIN\s+ATOMIC\b(.*?)\nEND;", re.S)

script = open(sys.argv[1], encoding="utf-8").read()
flat, bodies = ATOMIC.subn(r"\1LANGUAGE c\2AS 'checked below';\3", script)
left = len(re.findall(r"^BEGIN ATOMIC", flat, re.M))
if left or bodies == 0:
    sys.exit(f"{bodies} bodies after BEGIN ATOMIC were rewritten, {left} were not: mend {sys.argv[0]}")
print(flat)
