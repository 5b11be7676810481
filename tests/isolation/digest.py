#!/usr/bin/env python3
"""digest.py SPEC OUTPUT: prints the digest of the output that isolationtester wrote for a spec.

isolationtester runs the steps of a spec in many orders and prints every order in full. Most orders show the same, so a digest
prints each distinct observation once, under a letter, and then one letter for each order, in isolationtester's sequence. An
observation is everything that the sessions were told in one order: for each step its rows, its error, whether it had to wait
and after which step it went on; at the end the rows of the teardowns, such as a verdict. The SQL of the steps is left out, so
that a spec can be compared with its broken twin. Two outputs have the same digest only if every step of every order told its
session the same.
"""
import re
import sys

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ORDERS_IN_A_LINE = 60
WAITING, COMPLETED = " <waiting ...>", " <... completed>"
HEADING = "starting permutation: "


def steps_of(spec):
    """The SQL of each step as isolationtester echoes it: from an opening brace to the first closing one."""
    token = re.compile(r'#[^\n]*|\{[ \t\r\f]*(?P<sql>[^}]*?)[ \t\r\f]*\}|"(?P<quoted>[^"]*)"|(?P<word>[^\s{}#"]+)')
    steps, keyword, name = {}, None, None
    for found in token.finditer(spec):
        if found["sql"] is not None:
            if keyword == "step":
                steps[name] = found["sql"]
        elif found["word"] or found["quoted"]:
            keyword, name = name, found["word"] or found["quoted"]
    return steps


def orders_of(output, steps):
    """Each order as its heading and a list of (step, marker, lines printed after it)."""
    orders, at = [], 0
    while at < len(output):
        line = output[at:].split("\n", 1)[0]
        length = len(line)
        step = re.match(r"step ([^:]+):", line)
        if line.startswith(HEADING):
            orders.append((line.removeprefix(HEADING), [("setup", "", [])]))
        elif step and orders:
            name, echo = step[1], f"step {step[1]}: {steps.get(step[1])}"
            if line == f"step {name}:{COMPLETED}":
                orders[-1][1].append((name, COMPLETED, []))
            elif output.startswith(echo, at):
                marker = WAITING if output.startswith(WAITING, at + len(echo)) else ""
                length = len(echo + marker)
                orders[-1][1].append((name, marker, []))
            else:
                sys.exit(f"this is no step of the spec: {line}")
        elif orders:
            orders[-1][1][-1][2].append(line)
        elif line and not line.startswith("Parsed test spec"):
            sys.exit(f"before the first order: {line}")
        at += length + 1
    if not orders:
        sys.exit("no order was run")
    return orders


def facts_of(lines):
    """One text for each result ("columns: row / row"), and for each line of a message or an error."""
    facts, table = [], []
    for line in lines:
        if re.fullmatch(r"\(\d+ rows?\)", line):
            rows = [row for row in table[1:] if not re.fullmatch(r"[-+]+", row)]
            facts.append(f"{table[0]}: {' / '.join(rows) or 'no row'}" if table else line)
            table = []
        elif line:
            table.append("|".join(cell.strip() for cell in line.split("|")))
    return facts + table


def observation_of(said, closing):
    """Everything told in one order, by step. The last facts, `closing` of them, are the rows of the teardowns."""
    told, times, before = [], {}, "setup"
    for index, (step, marker, lines) in enumerate(said):
        facts, end = facts_of(lines), []
        if index == len(said) - 1 and closing:
            facts, end = facts[:-closing], facts[-closing:]
        if marker == COMPLETED:
            facts.insert(0, f"goes on after {before}")
        else:
            times[step], before = times.get(step, 0) + 1, step
        if marker == WAITING:
            facts.insert(0, "waits")
        name = step if times[step] == 1 else f"{step} ({times[step]})"
        told += [(0, name, fact) for fact in facts] + [(1, "end", fact) for fact in end]
    told.sort(key=lambda entry: entry[:2])
    return tuple(f"{name}  {fact}" for _, name, fact in told)


def digest_of(orders):
    """The text of the digest."""
    # Rows after the last step are that step's own, then those of the teardowns; the latter come in every order.
    closing = min(len(facts_of(said[-1][2])) for _, said in orders)
    firsts, made = {}, []
    for heading, said in orders:
        observation = observation_of(said, closing)
        firsts.setdefault(observation, heading)
        made.append(observation)
    few = len(firsts) <= len(LETTERS)
    letters = {observation: LETTERS[i] if few else f"({i + 1})" for i, observation in enumerate(firsts)}
    lines = [f"different observations: {len(firsts)}"]
    for observation, first in firsts.items():
        lines += ["", f"{letters[observation]}: {made.count(observation)} of {len(orders)} orders, the first: {first}"]
        lines += [f"    {fact}" for fact in observation]
    lines += ["", "observations of the orders:"]
    for at in range(0, len(made), ORDERS_IN_A_LINE):
        lines.append(f"{at + 1:5} " + "".join(letters[observation] for observation in made[at : at + ORDERS_IN_A_LINE]))
    return "\n".join(lines)


if __name__ == "__main__":
    spec_path, output_path = sys.argv[1:]
    with open(spec_path, encoding="utf-8") as spec, open(output_path, encoding="utf-8") as output:
        print(digest_of(orders_of(output.read(), steps_of(spec.read()))))
