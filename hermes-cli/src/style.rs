//! Colours, or none.

/// Whether a stream gets colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Style {
    /// True for a terminal that can and may show colours.
    pub(crate) colour: bool,
}

impl Style {
    /// The select-graphic-rendition code about a text. Written here because the choice was made at start, and a
    /// library that looks at the environment again could make another one.
    fn paint(self, text: &str, code: u8) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Of little weight.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(text, 2)
    }

    /// Of weight.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(text, 1)
    }

    /// Done.
    pub(crate) fn good(self, text: &str) -> String {
        self.paint(text, 32)
    }

    /// Worth a look.
    pub(crate) fn warn(self, text: &str) -> String {
        self.paint(text, 33)
    }

    /// Failed.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint(text, 31)
    }

    /// A name.
    pub(crate) fn name(self, text: &str) -> String {
        self.paint(text, 36)
    }
}
