//! Bridges to other libraries' registries, which add nothing to them.

#[cfg(feature = "bridge-metrics")]
pub mod metrics {
    #[inline]
    pub fn describe() {}

    #[inline]
    pub fn record() {}
}

#[cfg(feature = "bridge-opentelemetry")]
pub mod opentelemetry {
    use ::opentelemetry::metrics::Meter;

    #[inline]
    pub fn register(_meter: &Meter) {}
}

#[cfg(feature = "bridge-prometheus-client")]
pub mod prometheus_client {
    use std::fmt;

    use ::prometheus_client::collector::Collector;
    use ::prometheus_client::encoding::DescriptorEncoder;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Bridge;

    impl Collector for Bridge {
        #[inline]
        fn encode(&self, _encoder: DescriptorEncoder<'_>) -> fmt::Result {
            Ok(())
        }
    }
}
