//! Labels from spans of `tracing`.

use std::fmt;

use tracing_core::Subscriber;
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::spans::{self, Added, SpanLabels};

/// A layer that labels the work within a span of `tracing` with the span's name and with selected
/// fields.
///
/// ```
/// use plimsoll::label::{self, TracingLayer};
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let layer = TracingLayer::new().fields(["tenant"]);
/// let subscriber = tracing_subscriber::registry().with(layer);
/// tracing::subscriber::with_default(subscriber, || {
///     let span = tracing::info_span!("search", tenant = "acme", query = "rust");
///     let _entered = span.enter();
///     assert_eq!(label::current().to_string(), r#"{"span":"search", "tenant":"acme"}"#);
/// });
/// ```
///
/// # Which labels apply
/// * The label `span` is the name of the innermost span that the thread is in. A field's label has
///   the field's name; a field of an inner span replaces an outer one of the same name. A value
///   that is recorded later is a label from then on.
/// * Leaving a span restores the labels from before it was entered, even if they were changed in
///   the meantime.
/// * A task that is polled within a span has that span's labels as well as its own,
///   and keeps none of them. A task that waits within a span, as an `async` function with
///   `#[instrument]` does, has the labels of that place. If it waits in several places, it has
///   those of the first.
/// * A task begins with the labels at its creation, including those of the current spans, although
///   `tracing` has the task in none of these. Spans that it enters later replace them.
///
/// # Cost and limits
/// Sets of labels are never freed: select fields that have some hundreds of values, not request
/// numbers. By default, the layer enables all spans, down to the finest level; a filter restricts
/// them: `TracingLayer::new().with_filter(LevelFilter::INFO)`.
///
/// Entering a span that was entered before with the same labels around it costs some ten
/// nanoseconds more. Otherwise, its set of labels is looked up, under a lock.
#[derive(Clone, Debug, Default)]
pub struct TracingLayer {
    fields: Vec<String>,
}

impl TracingLayer {
    /// Creates a layer that labels with the names of spans.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds labels for these fields.
    #[must_use]
    pub fn fields<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.fields.extend(names.into_iter().map(Into::into));
        self
    }

    fn chosen(&self, record: impl FnOnce(&mut Chosen<'_>)) -> Vec<Added> {
        let mut chosen = Chosen {
            fields: &self.fields,
            added: Vec::new(),
        };
        record(&mut chosen);
        chosen.added
    }
}

/// The values of the selected fields.
struct Chosen<'a> {
    fields: &'a [String],
    added: Vec<Added>,
}

impl Chosen<'_> {
    fn has(&self, field: &Field) -> bool {
        self.fields.iter().any(|name| name == field.name())
    }
}

impl Visit for Chosen<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.has(field) {
            self.added.push((field.name(), value.to_owned()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.has(field) {
            self.added.push((field.name(), format!("{value:?}")));
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TracingLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut added = self.chosen(|chosen| attributes.record(chosen));
        added.insert(0, ("span", attributes.metadata().name().to_owned()));
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(SpanLabels::new(added));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let more = self.chosen(|chosen| values.record(chosen));
        if more.is_empty() {
            return;
        }
        with_labels(id, &context, |labels| spans::record(&labels, more));
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        with_labels(id, &context, spans::enter);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        with_labels(id, &context, |labels| spans::exit(&labels));
    }
}

fn with_labels<S: Subscriber + for<'a> LookupSpan<'a>>(
    id: &Id,
    context: &Context<'_, S>,
    work: impl FnOnce(std::sync::Arc<SpanLabels>),
) {
    let labels = context.span(id).and_then(|span| {
        let extensions = span.extensions();
        extensions.get::<std::sync::Arc<SpanLabels>>().cloned()
    });
    if let Some(labels) = labels {
        work(labels);
    }
}
