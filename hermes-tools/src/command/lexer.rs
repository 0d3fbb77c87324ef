//! Reads shell text into simple commands. Nothing is evaluated here.
//!
//! The reading is flat on purpose: every operator and reserved word only separates commands, so no command is lost in
//! a structure that is not understood. What is strange becomes a note in [`Script::problems`].

/// Deepest nesting of substitutions that is read.
const MAX_DEPTH: usize = 24;

/// A piece of a word.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    /// Text as it is; `quoted` protects it from splitting and globs.
    Text { text: String, quoted: bool },
    /// A variable; `default` is what stands in its place when it is not set (`${x:-text}`); `plain` is false for
    /// forms that change the value.
    Variable { name: String, quoted: bool, default: Option<String>, plain: bool },
    /// The output of commands.
    Output { script: Script, quoted: bool },
    /// A file that holds the output of commands, or that feeds them (`<(...)`, `>(...)`).
    Process { script: Script },
    /// A number that is worked out; it can be no command and no option.
    Arithmetic,
}

/// One word.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Word {
    pub(crate) pieces: Vec<Piece>,
}

/// A redirection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Redirect {
    pub(crate) op: String,
    pub(crate) target: Word,
}

/// How a command hangs on the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Link {
    /// It runs after it.
    #[default]
    Next,
    /// It runs when that one succeeds (`&&`).
    And,
    /// It runs when that one fails (`||`).
    Or,
}

/// One simple command.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Simple {
    pub(crate) words: Vec<Word>,
    pub(crate) redirects: Vec<Redirect>,
    /// Bodies of here-documents.
    pub(crate) heredocs: Vec<String>,
    /// True when it reads what the command before it prints.
    pub(crate) piped: bool,
    /// How it hangs on the command before it.
    pub(crate) link: Link,
    /// True when it runs in a shell of its own: another reads what it prints, or it runs in the background.
    pub(crate) detached: bool,
    /// True when it may stand in a branch, a loop or a function: it may run never, or many times.
    pub(crate) maybe: bool,
}

/// A part of a script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    /// A subshell begins.
    Open,
    /// A subshell ends.
    Close,
    /// A command.
    Command(Simple),
}

/// Shell text that was read.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Script {
    pub(crate) items: Vec<Item>,
    /// What could not be read.
    pub(crate) problems: Vec<&'static str>,
    /// True when it holds branches, loops, groups or functions.
    pub(crate) compound: bool,
}

/// Reserved words after which a command may stand.
const RESERVED: &[&str] =
    &["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "coproc", "esac"];

/// Reserved words that begin what may run never, or many times.
const COMPOUND: &[&str] = &["if", "while", "until", "for", "select", "case", "coproc", "function", "{"];

/// Reads a text.
pub(crate) fn lex(text: &str) -> Script {
    lex_at(text, 0)
}

/// The text without its comments, where they are certain: what was read again (a part that turned out to be something
/// else) may have looked like one, so a text that cannot be read as a whole keeps all of them.
pub(crate) fn without_comments(text: &str) -> String {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, depth: 0, open: Vec::new(), comments: Vec::new() };
    if !lexer.script(None).problems.is_empty() {
        return text.to_owned();
    }
    let is_in_one = |at: usize| lexer.comments.iter().any(|comment| comment.contains(&at));
    lexer.chars.iter().enumerate().filter(|(at, _)| !is_in_one(*at)).map(|(_, c)| *c).collect()
}

fn lex_at(text: &str, depth: usize) -> Script {
    if depth > MAX_DEPTH {
        return Script { problems: vec!["it is nested too deeply"], ..Script::default() };
    }
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, depth, open: Vec::new(), comments: Vec::new() };
    lexer.script(None)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    /// Here-documents whose bodies come after the line: delimiter, tabs are stripped, quoted, place of the command.
    open: Vec<Heredoc>,
    /// Where comments stand, by character: they do nothing.
    comments: Vec<std::ops::Range<usize>>,
}

struct Heredoc {
    delimiter: String,
    tabs: bool,
    quoted: bool,
    item: usize,
}

/// The script that is being read and the command at its end.
#[derive(Default)]
struct Draft {
    script: Script,
    current: Simple,
    has_current: bool,
    piped: bool,
    link: Link,
    parens: usize,
}

impl Draft {
    /// Ends the command; the next one reads its output when `pipe`.
    fn end(&mut self, pipe: bool) {
        if self.has_current {
            let simple = std::mem::take(&mut self.current);
            self.script.items.push(Item::Command(simple));
            self.has_current = false;
        }
        self.piped = pipe;
        self.link = Link::Next;
    }

    /// Ends a command that runs in a shell of its own.
    fn detach(&mut self, pipe: bool) {
        self.current.detached = self.has_current;
        self.end(pipe);
    }

    fn touch(&mut self) -> &mut Simple {
        if !self.has_current {
            self.has_current = true;
            self.current.piped = std::mem::take(&mut self.piped);
            self.current.link = std::mem::take(&mut self.link);
            self.current.maybe = self.script.compound;
        }
        &mut self.current
    }
}

impl Lexer {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn eat(&mut self, text: &str) -> bool {
        let matches = text.chars().enumerate().all(|(n, c)| self.peek_at(n) == Some(c));
        if matches {
            self.at += text.chars().count();
        }
        matches
    }

    /// Reads commands up to `close` (not nested), or to the end.
    fn script(&mut self, close: Option<char>) -> Script {
        let mut draft = Draft::default();
        let mut closed = close.is_none();
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\r' => self.at += 1,
                '\n' => {
                    self.at += 1;
                    draft.end(false);
                    self.heredoc_bodies(&mut draft);
                }
                '#' => self.comment(),
                ')' if close == Some(')') && draft.parens == 0 => {
                    self.at += 1;
                    closed = true;
                    break;
                }
                ';' | '&' | '|' | '(' | ')' => self.operator(&mut draft),
                '<' | '>' if !matches!(self.peek_at(1), Some('(')) => self.redirect(&mut draft),
                _ => self.word_or_reserved(&mut draft),
            }
        }
        draft.end(false);
        self.heredoc_bodies(&mut draft);
        if !closed || draft.parens > 0 {
            draft.script.problems.push("a bracket is not closed");
        }
        draft.script
    }

    fn comment(&mut self) {
        let start = self.at;
        while self.peek().is_some_and(|c| c != '\n') {
            self.at += 1;
        }
        self.comments.push(start..self.at);
    }

    fn operator(&mut self, draft: &mut Draft) {
        if self.eat("&>>") || self.eat("&>") {
            return self.redirect_target(draft, "&>".to_owned());
        }
        if self.eat("||") {
            draft.end(false);
            draft.link = Link::Or;
            return;
        }
        if self.eat("&&") {
            draft.end(false);
            draft.link = Link::And;
            return;
        }
        if self.eat(";;&") || self.eat(";;") || self.eat(";&") {
            return draft.end(false);
        }
        if self.eat("|&") || self.eat("|") {
            return draft.detach(true);
        }
        match self.peek() {
            Some('(') => {
                if !draft.has_current && self.peek_at(1) == Some('(') && self.arithmetic_end(2).is_some() {
                    self.at += 2;
                    let piece = self.arithmetic();
                    let mut sign = Word::default();
                    sign.push_str("((", true);
                    draft.touch().words.extend([sign, Word { pieces: vec![piece] }]);
                    return draft.end(false);
                }
                // A subshell of a pipeline reads what the pipeline gives it: so does its first command.
                let (piped, link) = (draft.piped, draft.link);
                self.array_or_function(draft);
                draft.end(piped);
                draft.link = link;
                draft.script.items.push(Item::Open);
                draft.parens += 1;
            }
            Some(')') => {
                draft.end(false);
                if draft.parens > 0 {
                    draft.parens -= 1;
                    draft.script.items.push(Item::Close);
                }
            }
            Some('&') => draft.detach(false),
            _ => draft.end(false),
        }
        self.at += 1;
    }

    /// What stands before a bracket: `f()` makes a function, `x=(a b)` a list whose value is not worked out.
    fn array_or_function(&self, draft: &mut Draft) {
        if !draft.has_current {
            return;
        }
        let mut ahead = self.at + 1;
        while self.chars.get(ahead).is_some_and(|c| matches!(c, ' ' | '\t')) {
            ahead += 1;
        }
        if self.chars.get(ahead) == Some(&')') {
            draft.script.compound = true;
        }
        if let Some(word) = draft.current.words.last_mut()
            && word.text_only().ends_with('=')
        {
            word.pieces.push(Piece::Arithmetic);
        }
    }

    fn word_or_reserved(&mut self, draft: &mut Draft) {
        let word = self.word(draft);
        // A number or a name in braces directly before an arrow is a file descriptor.
        if let Some(text) = word.plain()
            && matches!(self.peek(), Some('<' | '>'))
            && self.peek_at(1) != Some('(')
            && names_descriptor(&text)
        {
            return self.redirect(draft);
        }
        let first = !draft.has_current || draft.current.words.is_empty();
        let plain = if first { word.plain() } else { None };
        let begins = plain.as_deref().is_some_and(|plain| COMPOUND.contains(&plain));
        draft.script.compound |= begins || word.plain().as_deref() == Some("{");
        match plain.as_deref() {
            Some("[[") => {
                draft.touch().words.push(word);
                self.condition(draft);
            }
            Some("time") => {
                // Its own option; what is timed follows.
                self.spaces();
                if self.peek_at(2).is_none_or(char::is_whitespace) {
                    self.eat("-p");
                }
            }
            Some(reserved) if RESERVED.contains(&reserved) => {}
            // `coproc NAME {`: a brace alone begins commands. Elsewhere it is a word, and separating there loses nothing.
            _ if word.plain().as_deref() == Some("{") => draft.end(false),
            Some("function") => {
                // The name that follows is no command.
                self.spaces();
                let name = self.word(draft);
                if name.pieces.is_empty() {
                    draft.script.problems.push("a function has no name");
                }
            }
            _ => draft.touch().words.push(word),
        }
    }

    /// Reads to `]]` without taking its operators for separators.
    fn condition(&mut self, draft: &mut Draft) {
        loop {
            self.spaces();
            match self.peek() {
                None => return draft.script.problems.push("a condition is not closed"),
                Some('\n' | '&' | '|' | '(' | ')' | '<' | '>' | ';') => self.at += 1,
                Some(_) => {
                    let word = self.word(draft);
                    let end = word.plain().as_deref() == Some("]]");
                    draft.touch().words.push(word);
                    if end {
                        return;
                    }
                }
            }
        }
    }

    fn spaces(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\r')) {
            self.at += 1;
        }
    }

    fn redirect(&mut self, draft: &mut Draft) {
        for op in ["<<<", "<<-", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">"] {
            if self.eat(op) {
                return self.redirect_target(draft, op.to_owned());
            }
        }
        self.at += 1;
    }

    fn redirect_target(&mut self, draft: &mut Draft, op: String) {
        self.spaces();
        let target = self.word(draft);
        if target.pieces.is_empty() {
            draft.script.problems.push("a redirection has no target");
        }
        if matches!(op.as_str(), "<<" | "<<-") {
            let quoted = target.pieces.iter().any(|piece| matches!(piece, Piece::Text { quoted: true, .. }));
            let delimiter = target.text_only();
            draft.touch();
            let item = draft.script.items.len();
            self.open.push(Heredoc { delimiter, tabs: op == "<<-", quoted, item });
            return;
        }
        draft.touch().redirects.push(Redirect { op, target });
    }

    /// Reads the bodies of the here-documents of the line that has ended.
    fn heredoc_bodies(&mut self, draft: &mut Draft) {
        for heredoc in std::mem::take(&mut self.open) {
            let mut body = String::new();
            let mut found = false;
            while self.at < self.chars.len() {
                let line = self.line();
                let bare = if heredoc.tabs { line.trim_start_matches('\t') } else { line.as_str() };
                if bare == heredoc.delimiter {
                    found = true;
                    break;
                }
                body.push_str(bare);
                body.push('\n');
            }
            if !found {
                draft.script.problems.push("a here-document has no end");
            }
            if !heredoc.quoted {
                self.expansions_of(&body, draft);
            }
            if let Some(Item::Command(simple)) = draft.script.items.get_mut(heredoc.item) {
                simple.heredocs.push(body);
            } else {
                // Its command cannot be told: it is taken for a shell's.
                draft.script.problems.push("a here-document belongs to no command");
            }
        }
    }

    fn line(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|c| c != '\n') {
            self.at += 1;
        }
        let line = self.chars[start..self.at].iter().collect();
        self.at += 1;
        line
    }

    /// Commands whose output is put into the text of a here-document run, too.
    fn expansions_of(&self, body: &str, draft: &mut Draft) {
        let chars = body.chars().collect();
        let mut inner = Lexer { chars, at: 0, depth: self.depth + 1, open: Vec::new(), comments: Vec::new() };
        let mut word = Word::default();
        let mut problems = Vec::new();
        while let Some(c) = inner.peek() {
            match c {
                '\\' => inner.at += 2,
                '$' => inner.dollar(&mut word, true, &mut problems),
                '`' => inner.backticks(&mut word, true),
                _ => inner.at += 1,
            }
        }
        draft.script.problems.extend(problems);
        for piece in word.pieces {
            if let Piece::Output { script, .. } = piece {
                draft.script.problems.extend(script.problems);
                draft.script.items.push(Item::Open);
                draft.script.items.extend(script.items);
                draft.script.items.push(Item::Close);
            }
        }
    }

    fn word(&mut self, draft: &mut Draft) -> Word {
        let mut word = Word::default();
        let mut problems = Vec::new();
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' => break,
                '<' | '>' if self.peek_at(1) == Some('(') => {
                    self.at += 2;
                    let script = self.nested(')');
                    word.pieces.push(Piece::Process { script });
                }
                '<' | '>' => break,
                '\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some('\n') => {}
                        Some(c) => word.push(c, true),
                        None => problems.push("it ends with a backslash"),
                    }
                    self.at += 1;
                }
                '\'' => self.single_quotes(&mut word, &mut problems),
                '"' => {
                    self.at += 1;
                    self.double_quotes(&mut word, &mut problems);
                }
                '$' => self.dollar(&mut word, false, &mut problems),
                '`' => self.backticks(&mut word, false),
                c => {
                    word.push(c, false);
                    self.at += 1;
                }
            }
        }
        draft.script.problems.extend(problems);
        word
    }

    fn nested(&mut self, close: char) -> Script {
        if self.depth >= MAX_DEPTH {
            self.at = self.chars.len();
            return Script { problems: vec!["it is nested too deeply"], ..Script::default() };
        }
        self.depth += 1;
        let open = std::mem::take(&mut self.open);
        let script = self.script(Some(close));
        self.open = open;
        self.depth -= 1;
        script
    }

    fn single_quotes(&mut self, word: &mut Word, problems: &mut Vec<&'static str>) {
        self.at += 1;
        let start = self.at;
        while self.peek().is_some_and(|c| c != '\'') {
            self.at += 1;
        }
        word.push_str(&self.chars[start..self.at].iter().collect::<String>(), true);
        if self.peek().is_none() {
            problems.push("a quote is not closed");
        }
        self.at += 1;
    }

    /// The rest of a text in double quotes.
    fn double_quotes(&mut self, word: &mut Word, problems: &mut Vec<&'static str>) {
        word.push_str("", true);
        while let Some(c) = self.peek() {
            match c {
                '"' => {
                    self.at += 1;
                    return;
                }
                '\\' => {
                    match self.peek_at(1) {
                        Some('\n') => {}
                        Some(c @ ('$' | '`' | '"' | '\\')) => word.push(c, true),
                        Some(c) => {
                            word.push('\\', true);
                            word.push(c, true);
                        }
                        None => word.push('\\', true),
                    }
                    self.at += 2;
                }
                '$' => self.dollar(word, true, problems),
                '`' => self.backticks(word, true),
                c => {
                    word.push(c, true);
                    self.at += 1;
                }
            }
        }
        problems.push("a quote is not closed");
    }

    fn dollar(&mut self, word: &mut Word, quoted: bool, problems: &mut Vec<&'static str>) {
        self.at += 1;
        match self.peek() {
            Some('(') if self.peek_at(1) == Some('(') && self.arithmetic_end(2).is_some() => {
                self.at += 2;
                let piece = self.arithmetic();
                word.pieces.push(piece);
            }
            Some('(') => {
                self.at += 1;
                let script = self.nested(')');
                word.pieces.push(Piece::Output { script, quoted });
            }
            Some('{') => self.braced(word, quoted, problems),
            Some('\'') if !quoted => self.ansi_quotes(word, problems),
            Some('"') if !quoted => {
                self.at += 1;
                self.double_quotes(word, problems);
            }
            Some(c) if c.is_alphabetic() || c == '_' => {
                let start = self.at;
                while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_') {
                    self.at += 1;
                }
                let name = self.chars[start..self.at].iter().collect();
                word.pieces.push(Piece::Variable { name, quoted, default: None, plain: true });
            }
            Some(c) if c.is_ascii_digit() || "@*#?$!-".contains(c) => {
                self.at += 1;
                word.pieces.push(Piece::Variable { name: c.to_string(), quoted, default: None, plain: true });
            }
            _ => word.push('$', quoted),
        }
    }

    /// Where `))` closes what began `skip` characters ahead.
    fn arithmetic_end(&self, skip: usize) -> Option<usize> {
        let mut depth = 0usize;
        let mut at = self.at + skip;
        while let Some(&c) = self.chars.get(at) {
            match c {
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                ')' => return (self.chars.get(at + 1) == Some(&')')).then_some(at),
                // No arithmetic holds these; it is a subshell in a substitution.
                ';' | '\n' | '\'' | '"' => return None,
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// Arithmetic up to its end. Commands in it run, so they are kept.
    fn arithmetic(&mut self) -> Piece {
        let end = self.arithmetic_end(0).unwrap_or(self.chars.len());
        let mut word = Word::default();
        let mut problems = Vec::new();
        while self.at < end {
            match self.peek() {
                Some('$') => self.dollar(&mut word, true, &mut problems),
                Some('`') => self.backticks(&mut word, true),
                _ => self.at += 1,
            }
        }
        self.at = self.at.max(end) + 2;
        let mut script = Script { problems, ..Script::default() };
        for piece in word.pieces {
            if let Piece::Output { script: inner, .. } = piece {
                script.problems.extend(inner.problems);
                script.items.extend(inner.items);
            }
        }
        if script.items.is_empty() && script.problems.is_empty() {
            Piece::Arithmetic
        } else {
            Piece::Output { script, quoted: true }
        }
    }

    /// `${...}`.
    fn braced(&mut self, word: &mut Word, quoted: bool, problems: &mut Vec<&'static str>) {
        self.at += 1;
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            self.at += 1;
        }
        let name: String = self.chars[start..self.at].iter().collect();
        let plain = self.peek() == Some('}') && !name.is_empty();
        let has_default = self.peek() == Some(':') && matches!(self.peek_at(1), Some('-' | '=' | '+'))
            || matches!(self.peek(), Some('-' | '=' | '+'));
        if has_default {
            self.at += if self.peek() == Some(':') { 2 } else { 1 };
        }
        // The rest may hold commands; its text is the default.
        let mut rest = Word::default();
        let mut depth = 0usize;
        let mut closed = false;
        while let Some(c) = self.peek() {
            match c {
                '}' if depth == 0 => {
                    self.at += 1;
                    closed = true;
                    break;
                }
                '}' => {
                    depth -= 1;
                    self.at += 1;
                }
                '{' => {
                    depth += 1;
                    self.at += 1;
                }
                '\\' => {
                    if let Some(c) = self.peek_at(1) {
                        rest.push(c, true);
                    }
                    self.at += 2;
                }
                '\'' if !quoted => self.single_quotes(&mut rest, problems),
                '"' => {
                    self.at += 1;
                    self.double_quotes(&mut rest, problems);
                }
                '$' => self.dollar(&mut rest, quoted, problems),
                '`' => self.backticks(&mut rest, quoted),
                c => {
                    rest.push(c, quoted);
                    self.at += 1;
                }
            }
        }
        if !closed {
            problems.push("a brace is not closed");
        }
        let default = has_default.then(|| rest.text_only());
        word.pieces.push(Piece::Variable { name, quoted, default, plain });
        // Substitutions inside run, whatever becomes of their output.
        word.pieces.extend(rest.pieces.into_iter().filter(|piece| matches!(piece, Piece::Output { .. })));
    }

    fn backticks(&mut self, word: &mut Word, quoted: bool) {
        self.at += 1;
        let mut inner = String::new();
        let mut closed = false;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '`' => {
                    closed = true;
                    break;
                }
                '\\' if matches!(self.peek(), Some('`' | '\\' | '$')) => {
                    inner.extend(self.peek());
                    self.at += 1;
                }
                c => inner.push(c),
            }
        }
        let mut script = lex_at(&inner, self.depth + 1);
        if !closed {
            script.problems.push("a backtick is not closed");
        }
        word.pieces.push(Piece::Output { script, quoted });
    }

    /// `$'...'`.
    fn ansi_quotes(&mut self, word: &mut Word, problems: &mut Vec<&'static str>) {
        self.at += 1;
        let start = self.at;
        while let Some(c) = self.peek() {
            match c {
                '\\' => self.at += 2,
                '\'' => break,
                _ => self.at += 1,
            }
        }
        let end = self.at.min(self.chars.len());
        let raw: String = self.chars[start..end].iter().collect();
        word.push_str(&super::expand::unescape(&raw), true);
        if self.peek() != Some('\'') {
            problems.push("a quote is not closed");
        }
        self.at += 1;
    }
}

/// A number or a variable in braces: directly before an arrow it says which file descriptor is meant.
fn names_descriptor(text: &str) -> bool {
    let variable = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    text.chars().all(|c| c.is_ascii_digit())
        || variable.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

impl Word {
    fn push(&mut self, c: char, now_quoted: bool) {
        let mut buffer = [0; 4];
        self.push_str(c.encode_utf8(&mut buffer), now_quoted);
    }

    fn push_str(&mut self, more: &str, now_quoted: bool) {
        match self.pieces.last_mut() {
            Some(Piece::Text { text, quoted }) if *quoted == now_quoted => text.push_str(more),
            _ => self.pieces.push(Piece::Text { text: more.to_owned(), quoted: now_quoted }),
        }
    }

    /// The text, when nothing of it is quoted or expanded.
    pub(crate) fn plain(&self) -> Option<String> {
        match self.pieces.as_slice() {
            [Piece::Text { text, quoted: false }] => Some(text.clone()),
            _ => None,
        }
    }

    /// The text without expansions.
    pub(crate) fn text_only(&self) -> String {
        let text = |piece: &Piece| if let Piece::Text { text, .. } = piece { text.clone() } else { String::new() };
        self.pieces.iter().map(text).collect()
    }
}
