//! Error bodies in all the shapes that servers use.

use serde_json::Value;

/// Longest nested error text of an aggregator that is read.
const MAX_NESTED_BYTES: usize = 16 * 1024;

/// What an error body says.
#[derive(Debug, Default)]
pub(crate) struct ErrorBody {
    /// The provider's code, e.g. `insufficient_quota`; a number that is a status goes to `status`.
    pub(crate) code: Option<String>,
    /// The provider's type, e.g. `rate_limit_error`.
    pub(crate) kind: Option<String>,
    /// The text.
    pub(crate) message: String,
    /// Text of the provider behind an aggregator.
    pub(crate) nested: String,
    /// Code and type of the provider behind an aggregator.
    pub(crate) nested_codes: Vec<String>,
    /// The field of the request that the error is about: `param`, or where a validator stopped.
    pub(crate) param: Option<String>,
    /// A validator says that this field may not be there.
    pub(crate) param_is_extra: bool,
    /// An aggregator says that the error is another provider's.
    pub(crate) upstream: bool,
    /// A status inside the body.
    pub(crate) status: Option<u16>,
    /// The whole JSON, when it is one.
    pub(crate) json: Option<Value>,
}

impl ErrorBody {
    /// Reads a body; never fails, the worst case is the raw text as message.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let Ok(mut json) = serde_json::from_str::<Value>(text.trim()) else {
            return Self { message: plain(&text), nested: marks_of_a_page(&text), ..Self::default() };
        };
        if let Value::Array(items) = json {
            json = items.into_iter().next().unwrap_or(Value::Null);
        }
        let mut out = Self::default();
        let found = |path: &str| json.pointer(path).filter(|error| !error.is_null());
        match ["/error", "/choices/0/error", "/errors/0", "/response/error"].into_iter().find_map(found) {
            Some(Value::String(text)) => {
                out.message.clone_from(text);
                out.take(&json);
            }
            Some(error) => out.take(error),
            None => out.take(&json),
        }
        if out.message.is_empty() && !json.is_null() {
            out.message = plain(&text);
        }
        out.json = Some(json);
        out
    }

    fn take(&mut self, error: &Value) {
        let text = |key: &str| error.get(key).and_then(Value::as_str).map(str::to_owned);
        match error.get("code") {
            Some(Value::Number(number)) => self.number(number.as_u64()),
            Some(Value::String(code)) => match code.parse() {
                Ok(number) => self.number(Some(number)),
                Err(_) => self.code = Some(code.clone()),
            },
            _ => {}
        }
        if self.status.is_none()
            && let Some(number) = error.get("status").and_then(Value::as_u64)
        {
            self.number(Some(number));
        }
        // AWS names the type of an error `__type`, with a namespace before a number sign.
        let amazon = || text("__type").map(|kind| kind.rsplit('#').next().unwrap_or_default().to_owned());
        self.kind = text("type").or_else(|| text("status")).or_else(amazon);
        self.param = text("param").filter(|param| !param.is_empty());
        if self.param.is_none() {
            self.param = validated(error);
            self.param_is_extra = self.param.is_some();
        }
        if self.message.is_empty() {
            self.message = ["message", "detail", "msg", "error_description", "reason"]
                .into_iter()
                .find_map(|key| error.get(key))
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .unwrap_or_default();
        }
        if let Some(metadata) = error.get("metadata") {
            self.upstream = metadata.get("provider_name").is_some();
            if let Some(raw) = metadata.get("raw") {
                let raw = raw.as_str().map_or_else(|| raw.to_string(), str::to_owned);
                self.nested = cut(&raw, MAX_NESTED_BYTES).to_owned();
                if let Ok(inner) = serde_json::from_str::<Value>(&self.nested) {
                    let inner = inner.get("error").unwrap_or(&inner);
                    let named = ["code", "type", "status"].into_iter().filter_map(|key| inner.get(key)?.as_str());
                    self.nested_codes = named.map(str::to_owned).collect();
                }
            }
        }
    }

    fn number(&mut self, number: Option<u64>) {
        match number.and_then(|number| u16::try_from(number).ok()) {
            Some(status @ 400..=599) => self.status = Some(status),
            _ => self.code = number.map(|number| number.to_string()),
        }
    }

    /// Every code and type, the aggregator's own first.
    pub(crate) fn codes(&self) -> impl Iterator<Item = &str> {
        let own = [self.code.as_deref(), self.kind.as_deref()].into_iter().flatten();
        own.chain(self.nested_codes.iter().map(String::as_str))
    }

    /// Everything readable, lower case, for phrases.
    pub(crate) fn words(&self) -> String {
        let mut words = self.message.to_lowercase();
        if !self.nested.is_empty() {
            words.push('\n');
            words.push_str(&self.nested.to_lowercase());
        }
        words
    }

    /// A number that stands somewhere on the first two levels, under this key.
    pub(crate) fn field(&self, key: &str) -> Option<&Value> {
        let json = self.json.as_ref()?;
        let error = json.get("error");
        let metadata = error.and_then(|error| error.get("metadata"));
        [error, Some(json), metadata].into_iter().flatten().find_map(|value| value.get(key))
    }
}

/// The field at which a validator (pydantic, behind FastAPI) stopped: `{"detail":[{"loc":["body","seed"],"type":"extra_forbidden"}]}`.
fn validated(error: &Value) -> Option<String> {
    let first = error.get("detail")?.get(0)?;
    let is_extra = first.get("type").and_then(Value::as_str).is_some_and(|kind| kind.contains("extra"));
    let path = first.get("loc")?.as_array()?;
    let names: Option<Vec<&str>> = path.iter().filter(|part| *part != "body").map(Value::as_str).collect();
    names.filter(|names| is_extra && !names.is_empty()).map(|names| names.join("."))
}

/// The longest beginning of at most `most` bytes that ends between characters.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A page is named, not shown; other text is shown as it is.
fn plain(text: &str) -> String {
    let text = text.trim();
    let start = cut(text, 64).to_lowercase();
    if start.starts_with("<!doctype") || start.starts_with("<html") {
        let lower = text.to_lowercase();
        let title = lower.find("<title>").map(|at| at + 7).zip(lower.find("</title>"));
        // Offsets of the lower-case text fit the original only when lowering changed no length.
        let title = title.filter(|_| lower.len() == text.len()).and_then(|(from, to)| text.get(from..to));
        return match title {
            Some(title) => format!("a web page came instead of an answer: {}", title.trim()),
            None => "a web page came instead of an answer".to_owned(),
        };
    }
    text.to_owned()
}

/// The start of a page, for the phrases of firewalls.
fn marks_of_a_page(text: &str) -> String {
    if text.trim_start().starts_with('<') { cut(text, MAX_NESTED_BYTES).to_owned() } else { String::new() }
}
