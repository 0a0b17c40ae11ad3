//! The export request.

use plimsoll_pprof::Profile;
use plimsoll_pprof::message::Message;

use crate::attribute::key_value;
use crate::dictionary::Dictionary;
use crate::field;
use crate::profile;

/// The version of OpenTelemetry's protocol definitions that the encoding follows.
pub const PROTOCOL: &str = "1.10.0";

/// An `ExportProfilesServiceRequest` under construction: the profiles of one process, which share one
/// dictionary.
#[derive(Debug)]
pub struct Request {
    dictionary: Dictionary,
    resource_profiles: Message,
}

impl Request {
    /// Begins a request without profiles. `attributes` describe the process, by the names of
    /// OpenTelemetry's conventions: `service.name`, `service.version`, `host.name`. Of several with one
    /// key, the first counts.
    pub fn new<'a>(attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut resource = Message::default();
        let mut keys: Vec<&str> = Vec::new();
        for (key, value) in attributes {
            if !keys.contains(&key) {
                keys.push(key);
                resource.message(field::resource::ATTRIBUTES, &key_value(key, value));
            }
        }
        let mut resource_profiles = Message::default();
        resource_profiles.message(field::resource_profiles::RESOURCE, &resource);
        Self {
            dictionary: Dictionary::new(),
            resource_profiles,
        }
    }

    /// Adds a profile.
    pub fn add(&mut self, profile: &Profile) {
        let scope_profiles = profile::encode(profile, &mut self.dictionary);
        self.resource_profiles
            .message(field::resource_profiles::SCOPE_PROFILES, &scope_profiles);
    }

    /// Returns the encoded request.
    pub fn finish(self) -> Vec<u8> {
        let mut request = Message::default();
        request.message(field::request::RESOURCE_PROFILES, &self.resource_profiles);
        request.message(field::request::DICTIONARY, &self.dictionary.encode());
        request.into_bytes()
    }
}
