"""What style.py knows of C++: tokens, and from them functions, statements and expressions. Run: see style.py.

No grammar: brackets are matched first, then declarations, statements and expressions are told apart by what a reader
would look at (a keyword, a parenthesis before the brace, two names in a row). Good enough for code that clang-format
has been over; what it cannot read it refuses (NotUnderstood).
"""
import bisect
import re

# ---- tokens of C++

TOKEN = re.compile(r'''
    (?P<space>\s+) | (?P<comment>//[^\n]*|/\*.*?\*/) |
    (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)") |
    (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*") | (?P<char>'(?:\\.|[^'\\\n])+') |
    (?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*) | (?P<name>[A-Za-z_]\w*) |
    (?P<op>\.\.\.|->\*?|<<=|>>=|<=>|::|<<|\+\+|--|&&|\|\||[<>=!+\-*/%&|^]=|.)''', re.X | re.S)
DIRECTIVE = re.compile(r"[ \t]*#(?:[^\n\\]|\\\n|\\.)*")
CLOSING = {"(": ")", "[": "]", "{": "}"}


class Token:
    __slots__ = ("kind", "text", "line")

    def __init__(self, kind, text, line):
        self.kind, self.text, self.line = kind, text, line


def tokens_of(text):
    """The tokens that the compiler sees, without directives."""
    newlines = [i for i, c in enumerate(text) if c == "\n"]
    out, at, line_begins = [], 0, True
    while at < len(text):
        directive = DIRECTIVE.match(text, at) if line_begins else None
        if directive:
            at, line_begins = directive.end(), False
            continue
        match = TOKEN.match(text, at)
        kind = "raw" if match.lastgroup == "mark" else match.lastgroup
        if kind == "space":
            line_begins = line_begins or "\n" in match.group()
        elif kind != "comment":
            out.append(Token(kind, match.group(), bisect.bisect_left(newlines, at) + 1))
            line_begins = False
        at = match.end()
    return out


class NotUnderstood(Exception):
    pass


# ---- a small parser: functions, statements, expressions

ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "return", "throw"}
NO_CALL = {"return", "throw", "case", "else", "do", "delete", "co_return", "co_yield"}  # a parenthesis behind groups
TYPES = {"const", "constexpr", "static", "volatile", "auto", "unsigned", "signed", "int", "double", "float", "bool",
         "char", "long", "short", "void", "thread_local", "typename", "extern", "alignas", "using", "typedef",
         "static_assert", "goto", "__shared__", "asm"}
SCOPES = {"struct", "class", "union", "namespace"}


class Cpp:
    """functions: (name, line of the opening brace, line of the closing one); findings: (line, what) by rule."""

    def __init__(self, text):
        self.t = tokens_of(text)
        self.match, self.functions, self.commas, self.conditionals = {}, [], [], []
        stack = []
        for i, token in enumerate(self.t):
            if token.kind != "op":
                continue
            if token.text in CLOSING:
                stack.append(i)
            elif token.text in CLOSING.values():
                if not stack or CLOSING[self.t[stack[-1]].text] != token.text:
                    raise NotUnderstood(token.line, f"'{token.text}' closes nothing")
                self.match[stack[-1]] = i
                self.match[i] = stack.pop()
        if stack:
            raise NotUnderstood(self.t[stack[-1]].line, f"'{self.t[stack[-1]].text}' is not closed")
        i = 0
        while i < len(self.t):
            i = self.declaration(i, len(self.t))

    def s(self, i):
        return self.t[i].text if 0 <= i < len(self.t) and self.t[i].kind not in ("string", "char", "raw") else ""

    def is_name(self, i):
        return 0 <= i < len(self.t) and self.t[i].kind == "name"

    def past_angles(self, i):
        """From '<' to behind its '>'; i where it is no bracket."""
        depth, k = 0, i
        while k < len(self.t):
            x = self.s(k)
            if x in ("(", "[", "{"):
                k = self.match[k]
            elif x in (";", ")", "]", "}", "&&", "||", "?"):
                return i
            depth += {"<": 1, ">": -1, ">>": -2}.get(x, 0)
            k += 1
            if depth <= 0:
                return k
        return i

    # -- declarations at namespace and class scope, and local types

    def declaration(self, i, end):
        first, kind, initialisers = i, "", False
        if self.s(i) in ("public", "private", "protected") and self.s(i + 1) == ":":
            return i + 2
        while i < end:
            x = self.s(i)
            if x == ";":
                self.expression(first, i)
                return i + 1
            if x == "template" and self.s(i + 1) == "<":
                i = self.past_angles(i + 1)
                continue
            if x in SCOPES and not kind or x == "extern" and self.t[i + 1].kind == "string":
                kind = "scope"
            elif x == "enum":
                kind = "enum"
            elif x == "(" and kind != "init" and self.s(i - 1) not in ("__attribute__", "alignas"):
                kind = "function"
            elif x == "=" and self.s(i - 1) != "operator":
                kind = "init"
            elif x == ":" and kind == "function":
                initialisers = True
            if x == "{" and kind == "scope":
                self.expression(first, i)
                self.declarations(i + 1, self.match[i])
                i = self.match[i]
                if self.s(first) in ("namespace", "inline", "extern"):
                    return i + 1
                first = i + 1  # that far all is read
            elif x == "{" and kind == "function":
                in_list = initialisers and (self.is_name(i - 1) or self.s(i - 1) == ">")
                if not in_list or self.s(i - 1) in ("const", "noexcept", "override", "final"):
                    return self.function(first, i)
            i = self.match[i] + 1 if x in CLOSING and i in self.match and self.match[i] > i else i + 1
        self.expression(first, end)
        return end

    def declarations(self, i, end):
        while i < end:
            i = self.declaration(i, end)

    def function(self, first, brace):
        k = first
        while self.s(k) != "(" or self.s(k - 1) in ("__attribute__", "alignas", "__launch_bounds__"):
            k = self.match[k] + 1 if self.s(k) == "(" else k + 1
        name = "operator" if not self.is_name(k - 1) else self.s(k - 1)
        close = self.match[brace]
        self.functions.append((name, self.t[brace].line, self.t[close].line))
        self.expression(first, brace)
        self.block(brace)
        return close + 1

    # -- statements

    def block(self, brace):
        i, end = brace + 1, self.match[brace]
        while i < end:
            i = self.statement(i, end)

    def statement(self, i, end):
        x = self.s(i)
        if x == "{":
            self.block(i)
            return self.match[i] + 1
        if x == ";":
            return i + 1
        if x in ("if", "while", "for", "switch"):
            return self.control(i, end)
        if x == "do":
            i = self.statement(i + 1, end)  # at `while`
            self.expression(i + 1, self.match[i + 1] + 1)
            return self.match[i + 1] + 2
        if x == "try" or x == "else":
            return self.statement(i + 1, end)
        if x == "catch":
            return self.statement(self.match[i + 1] + 1, end)
        if x in ("case", "default"):
            while i < end and self.s(i) != ":":
                i = self.match[i] + 1 if self.s(i) in CLOSING else i + 1
            return i + 1
        if x in SCOPES or x in ("enum", "template"):
            return self.declaration(i, end)
        if self.is_name(i) and (self.s(i + 1) in ("for", "while", "if", "do") or
                                self.s(i + 1) == ":" and self.s(i + 2) != ":"):
            return self.statement(i + (2 if self.s(i + 1) == ":" else 1), end)  # UNROLL for; label:
        j = i
        while j < end and self.s(j) != ";":
            j = self.match[j] + 1 if self.s(j) in CLOSING else j + 1
        self.check_commas(i, j)
        self.expression(i, j)
        return j + 1

    def control(self, i, end):
        x, i = self.s(i), i + 1
        if self.s(i) == "constexpr":
            i += 1
        if self.s(i) != "(":
            raise NotUnderstood(self.t[i].line, f"no parenthesis behind '{x}'")
        a, b = i + 1, self.match[i]
        self.expression(i, b + 1)
        if x != "for":
            last = [k for k in range(a, b) if self.s(k) == ";"][-1:]
            self.check_commas(last[0] + 1 if last else a, b)
        return self.statement(b + 1, end)

    # -- commas between expressions

    def check_commas(self, i, end):
        """A statement or a grouped expression: its commas are operators unless it declares something."""
        if self.is_declaration(i):
            return
        while i < end:
            x = self.s(i)
            if x == ",":
                self.commas.append((self.t[i].line, "a comma operator"))
                return
            after = self.past_template_arguments(i)
            if after:
                i = after
            else:
                i = self.match[i] + 1 if x in CLOSING else i + 1

    def past_template_arguments(self, i):
        if not self.is_name(i) or self.s(i + 1) != "<":
            return 0
        after = self.past_angles(i + 1)
        return after if after > i + 1 and self.s(after) in ("(", "::", "{", ";", ")", ">", "&", "*", ",") else 0

    def is_declaration(self, i):
        x = self.s(i)
        if x in TYPES:
            return True
        if x in NO_CALL or not (self.is_name(i) or x == "::"):
            return False
        while True:
            i += self.s(i) == "::"
            if not self.is_name(i):
                return False
            i += 1
            if self.s(i) == "<":
                after = self.past_angles(i)
                if after == i:
                    return False
                i = after
            if self.s(i) != "::":
                break
        while self.s(i) in ("*", "&", "&&", "const", "__restrict__"):
            i += 1
        return self.is_name(i) and self.s(i + 1) in ("=", ";", ",", "(", "[", "{", ":", "")

    # -- conditional operators

    def is_lambda(self, brace):
        """Whether this brace of an expression opens the body of a lambda."""
        k = brace - 1
        while self.is_name(k) or self.s(k) in ("::", "*", "&", "<", ">"):  # mutable, -> type
            k -= 1
        if self.s(k) == "->":
            k -= 1
            while self.s(k) in ("mutable", "noexcept"):
                k -= 1
        elif k != brace - 1 and not set(self.s(n) for n in range(k + 1, brace)) <= {"mutable", "noexcept"}:
            return False
        if self.s(k) == ")":
            k = self.match[k] - 1
            while self.s(k) in ("__device__", "__host__"):
                k -= 1
        return self.s(k) == "]" and not self.is_subscript(self.match[k])

    def is_subscript(self, bracket):
        k = bracket - 1
        named = self.is_name(k) and self.s(k) not in NO_CALL
        return named or self.s(k) in (")", "]") or (k >= 0 and self.t[k].kind in ("string", "raw"))

    def group(self, i):
        """A bracket inside an expression; whether it holds a conditional operator outside of lambdas."""
        x, close = self.s(i), self.match[i]
        if x == "{" and self.is_lambda(i):
            self.block(i)
            return False
        grouped = x == "(" and (not self.is_name(i - 1) or self.s(i - 1) in NO_CALL) and \
            self.s(i - 1) not in (")", "]", ">", "}") and self.s(i - 2) != "__attribute__"
        if grouped or x == "[" and self.is_subscript(i) and self.s(i - 1) not in ("auto", "new"):
            self.check_commas(i + 1, close)
        return self.expression(i + 1, close)

    def expression(self, i, end):
        """Reports conditionals inside conditionals; whether there is one at all."""
        found, first = False, i
        while i <= end:
            if i == end or self.s(i) in (",", ";"):
                found |= self.segment(first, i)
                first = i + 1
            i = self.match[i] + 1 if i < end and self.s(i) in CLOSING else i + 1
        return found

    def segment(self, i, end):
        """Between commas: a ? b : c, whose condition begins behind the last assignment before its '?'."""
        questions, inside, any_group = [], [], False
        while i < end:
            x = self.s(i)
            if x in ASSIGN and not questions:
                inside = []
            if x == "?":
                questions.append(i)
            if x in CLOSING:
                if self.group(i):
                    any_group = True
                    inside.append(i)
                i = self.match[i]
            i += 1
        nested = questions[1:2] or (inside[:1] if questions else [])
        for at in nested:
            self.conditionals.append((self.t[at].line, "a conditional operator inside of another"))
        return bool(questions) or any_group
