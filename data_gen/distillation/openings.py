"""Openings of chats from which a target model writes its own training text.

A complete opening is a whole user turn and the target writes the
answer; an incomplete one is the first words of a user turn, which the target continues before it answers
itself. Slots are filled from small word lists, so there are many more openings than lines here.
"""

from __future__ import annotations

import random
from typing import NamedTuple


class Opening(NamedTuple):
    """`text` of a user turn; the target continues it first where it is not `complete`."""

    text: str
    complete: bool
    task: str


BOXED = "Please reason step by step, and put your final answer within \\boxed{}."

WORDS: dict[str, list[str]] = {
    "name": ["Maria", "Tom", "Aisha", "Ben", "Chloe", "David", "Elena", "Farid", "Grace", "Hugo", "Ines", "James", "Kofi", "Lena", "Marco", "Nora", "Omar"],
    "thing": ["apples", "books", "pencils", "tickets", "marbles", "cookies", "stamps", "eggs", "shirts", "candles", "boxes", "flowers", "coins"],
    "place": [
        "a lighthouse", "a quiet village", "a crowded train", "an old library", "a desert town", "the sea floor",
        "a mountain hut", "a space station", "a hospital at night", "a bakery before dawn", "a flooded city",
        "an empty theatre", "a border crossing", "an island without maps", "a school attic", "a night market",
    ],
    "who": [
        "a retired clockmaker", "two sisters", "a young botanist", "a tired detective", "a lost dog",
        "the last beekeeper", "a nervous pianist", "an honest thief", "a robot gardener", "a lonely giant",
        "a student of stars", "a ferry captain", "a ghost who cannot sleep", "a grandmother with a secret",
    ],
    "feeling": ["hope", "grief", "envy", "joy", "regret", "courage", "homesickness", "wonder", "shame", "patience", "boredom", "relief"],
    "form": [
        "short story", "poem", "letter", "diary entry", "monologue", "fable", "scene of a play", "fairy tale",
        "limerick", "travel report", "ghost story", "dialogue", "blog post", "speech", "song",
    ],
    "algo": [
        "reverses a linked list", "checks whether a string is a palindrome", "counts the vowels of a string",
        "finds the longest common prefix of a list of strings", "merges two sorted lists",
        "returns the n-th Fibonacci number", "removes duplicates from a list while keeping the order",
        "checks whether brackets are balanced", "computes the greatest common divisor of two integers",
        "rotates a matrix by 90 degrees", "finds the two numbers that add up to a target",
        "converts a Roman numeral to an integer", "sorts a dictionary by its values", "flattens a nested list",
        "returns all prime numbers below n", "finds the most frequent word of a text",
        "computes a running average of a list", "parses a date string", "does a binary search",
        "groups words that are anagrams", "counts the islands of a grid", "validates an email address",
        "computes the edit distance of two strings", "encodes a string by run lengths",
    ],
    "function": [
        "def sum_even(numbers: List[int]) -> int:\n    \"\"\" Return the sum of the even numbers.\n",
        "def count_words(text: str) -> Dict[str, int]:\n    \"\"\" Count how often each word occurs.\n",
        "def is_sorted(values: List[float]) -> bool:\n    \"\"\" Check whether the values are in ascending order.\n",
        "def second_largest(values: List[int]) -> Optional[int]:\n    \"\"\" Return the second largest value.\n",
        "def caesar(text: str, shift: int) -> str:\n    \"\"\" Shift every letter of the text.\n",
        "def transpose(matrix: List[List[int]]) -> List[List[int]]:\n    \"\"\" Swap rows and columns.\n",
        "def digits(n: int) -> List[int]:\n    \"\"\" Return the digits of n, the first digit first.\n",
        "def common(a: list, b: list) -> list:\n    \"\"\" Return the sorted elements that both lists contain.\n",
        "def triangle_area(a: float, b: float, c: float) -> float:\n    \"\"\" Return the area, or -1 if",
        "def filter_prefix(words: List[str], prefix: str) -> List[str]:\n    \"\"\" Keep the words that",
    ],
    "exercise": [
        "a bank account with deposits and withdrawals", "the score of a bowling game", "a tic-tac-toe board",
        "the change for an amount of money", "a simple tokenizer", "a circular buffer", "a phone number",
        "the age of a person on different planets", "a robot that moves on a grid", "a school roster",
        "the scrabble score of a word", "a linked list", "a leap year check", "a password generator",
        "the ISBN check digit", "a spiral matrix", "an inventory of a shop", "a word search puzzle",
    ],
    "language": ["French", "Spanish", "Italian"],
    "code": ["Python", "Python", "Python", "JavaScript", "Java", "C++", "SQL", "Bash"],
    "topic": [
        "photosynthesis", "the water cycle", "inflation", "black holes", "healthy sleep", "the French Revolution",
        "machine learning", "climate change", "good study habits", "vaccines", "the Roman army", "jazz", "chess",
        "time management", "democracy", "coral reefs", "the stock market", "remote work", "public speaking",
    ],
    "math": [
        "a quadratic equation", "an arithmetic progression", "a right triangle", "a circle and a tangent",
        "a polynomial with integer roots", "the number of divisors", "a fair die", "a permutation", "a complex number",
        "a geometric series", "the last two digits of a power", "a regular hexagon", "a function equation",
        "an inequality of three positive numbers", "a 3 by 3 determinant", "a random walk", "a parabola",
        "coprime integers", "the remainder modulo 7", "a logarithm", "a sphere inside a cone", "a recurrence",
    ],
    "starter": [
        "The", "She", "When", "I", "In the", "My", "There was", "He", "We", "It", "Yesterday", "After", "My brother",
        "Please", "The children", "At the end of", "If you", "Everyone", "The doctor", "Last summer",
    ],
    "debut": [
        "Le", "La", "Il", "Elle", "Quand", "Je", "Dans", "Nous", "Un jour", "Les enfants", "Mon", "C'est",
    ],
    "inicio": ["El", "La", "Cuando", "Ella", "Los", "Mi", "En", "Un", "No", "Yo", "Hoy", "Todos"],
    "inizio": ["Il", "La", "Quando", "Lei", "Gli", "Mio", "Nel", "Un", "Non", "Io", "Oggi", "Tutti"],
}  # fmt: skip

COMPLETE: dict[str, list[str]] = {
    "writing": [
        "Write a {form} about {who} in {place}.",
        "Write a {form} about {feeling}. Let it begin in {place} and end with a surprise.",
        "Continue this story: {who} had come to {place} to forget. Then the door opened.",
        "You are {who}. Tell a child about {place}, and about {feeling}.",
        "Write a {form} of about 300 words in which {who} meets {who}. The mood is {feeling}.",
    ],
    "coding": [
        "Write a {code} function that {algo}. Explain how it works.",
        "Write a function that {algo}. Give the code in {code} and a small test.",
        "Complete the following Python function. Give the whole function in one code block, then explain in a few "
        "sentences how it works.\n\n```python\nfrom typing import Dict, List, Optional\n\n\n{function}"
        '    >>> # see the tests\n    """\n```',
        "Solve this exercise in {code}: model {exercise}. Show the code, then explain it.",
    ],
    "math_easy": [
        "{name} has {n} {thing} and buys {m} more each day. How many {thing} does {name} have after {k} days? " + BOXED,
        "{name} sells {n} {thing} for ${k} each and spends ${m}. How much money is left? " + BOXED,
        "A shop has {n} {thing}. It sells {k} percent of them and then gets {m} new ones. How many are there now? "
        + BOXED,
        "{name} walks {k} miles an hour for {m} hours and {name} walks {n} miles in all. Who walks further? " + BOXED,
        "Share {n} {thing} among {k} friends. How many does each get, and how many are left over? " + BOXED,
    ],
    "math_hard": [
        "Let $f(x) = x^2 - {n}x + {m}$. Find the sum of the squares of its roots. " + BOXED,
        "Find all integers $n$ such that $n^2 + {n}n + {m}$ is a perfect square. " + BOXED,
        "How many positive integers less than ${n}00$ are divisible by {k} but not by {m}? " + BOXED,
        "In triangle $ABC$ let $AB = {n}$, $BC = {m}$ and $\\angle B = 60^\\circ$. Find $AC^2$. " + BOXED,
        "Let $a_1 = {k}$ and $a_{{n+1}} = 2a_n + {m}$. Find a closed form for $a_n$. " + BOXED,
        "Find the remainder when ${m}^{{{n}}}$ is divided by {k}. " + BOXED,
    ],
    "translation": [
        "Translate the following English text into {language}. Give only the translation.\n\n{who} went to {place} "
        "with {name} and {name}. They felt {feeling} for the first time in years.",
        "Translate the following English text into {language}. Give only the translation.\n\nCould you tell me about "
        "{topic}? I have {n} {thing} and no time.",
    ],
    "general": ["Explain {topic} to a beginner.", "List the main points about {topic}.", "What is {topic}?"],
}

INCOMPLETE: dict[str, list[str]] = {
    "writing": [
        "Write a {form} about", "Write a {form} in which {who}", "Imagine that", "Write the opening of a novel where",
        "Compose a {form} for", "Describe {place} as if", "Create a character who", "Help me write a {form}",
        "You are {who}.", "Write a review of", "Draft an email to", "Roleplay as",
    ],
    "coding": [
        "Write a {code} function", "Write a {code} program that", "Complete the following Python function.",
        "Implement", "How do I", "Fix the bug in this {code} code:\n\n```", "Given a list of",
        "Given a string", "Solve this exercise in Python.", "Your task is to",
        "Complete the following Python function. Give the whole function in one code block, then explain in a few "
        "sentences how it works.\n\n```python\ndef",
        "Solve this exercise in Python. Show the code, then explain it in a few sentences.\n\n",
    ],
    "math_easy": [
        "{name} has", "{name} buys {n}", "A train", "If {name}", "There are {n} {thing}", "A farmer", "{name} earns",
        "In a class of {n}", "A store sells", "The price of", "{name} and {name}", "A recipe needs",
    ],
    "math_hard": [
        "Let $a", "Let $n$ be", "Find all", "Consider {math}", "Prove or compute:", "Determine the", "In triangle $ABC$",
        "Suppose that", "How many", "Find the value of", "Let $f(x)", "Given {math},", "A sequence", "For a positive",
    ],
    "translation": [
        "Translate the following English text into {language}. Give only the translation.\n\n{starter}",
        "Translate the following English text into {language}. Give only the translation.\n\n{starter}",
        "Translate the following French text into {language}. Give only the translation.\n\n{debut}",
        "Translate the following Spanish text into {language}. Give only the translation.\n\n{inicio}",
        "Translate the following Italian text into {language}. Give only the translation.\n\n{inizio}",
    ],
    "general": ["", "", "", "What", "How", "Explain", "Summarize", "Why", "Can you", "I", "Give me"],
}  # fmt: skip

TASKS = sorted(COMPLETE)


class _Slots(dict[str, str]):
    """Fills a template's slots with random words; `{n}`, `{m}`, `{k}` are numbers."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng

    def __missing__(self, slot: str) -> str:
        ranges = {"n": (10, 99), "m": (2, 30), "k": (2, 9)}
        if slot in ranges:
            return str(self.rng.randint(*ranges[slot]))
        return self.rng.choice(WORDS[slot])


def sample_openings(count: int, seed: int, complete_share: float = 0.45) -> list[Opening]:
    """Draw `count` openings, all tasks equally often; the same seed gives the same list."""
    rng = random.Random(seed)
    openings = []
    for index in range(count):
        task = TASKS[index % len(TASKS)]
        complete = rng.random() < complete_share
        template = rng.choice((COMPLETE if complete else INCOMPLETE)[task])
        openings.append(Opening(_fill(template, rng), complete, task))
    rng.shuffle(openings)
    return openings


def _fill(template: str, rng: random.Random) -> str:
    """Fill known slots only: braces of LaTeX and code stay as they are."""
    slots = _Slots(rng)
    text = template.replace("{{n+1}}", "{n+1}").replace("{{{n}}}", "{" + slots["n"] + "}")
    for slot in [*WORDS, "n", "m", "k"]:
        while "{" + slot + "}" in text:
            text = text.replace("{" + slot + "}", slots[slot], 1)
    return text
