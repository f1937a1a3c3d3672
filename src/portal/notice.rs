//! What pages tell: why they can't be shown, and what a form did. Pure. The templates have a text for each.

use axum::http::StatusCode;

use crate::types::text_form::text_enum;

text_enum! {
    /// Why a page can't be shown. The templates have a text for each, under its name.
    pub enum PortalFailure {
        NoSuchAddress = "no_such_address",
        /// The token is not whole, or of somebody else.
        Cut = "cut",
        Expired = "expired",
        Revoked = "revoked",
        /// The token permits only viewing.
        ViewOnly = "view_only",
        /// Redis does not answer.
        Later = "later",
    }
}

impl PortalFailure {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::NoSuchAddress | Self::Cut => StatusCode::NOT_FOUND,
            Self::Expired | Self::Revoked => StatusCode::GONE,
            Self::ViewOnly => StatusCode::FORBIDDEN,
            Self::Later => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

text_enum! {
    /// What a form did, or why it did nothing. The templates have a text for each, under its name.
    pub enum PortalNotice {
        /// The contact is added, and asked to confirm.
        Added = "added",
        /// It is asked again.
        Asked = "asked",
        Verified = "verified",
        Removed = "removed",
        Muted = "muted",
        Unmuted = "unmuted",
        Changed = "changed",
        TestAccepted = "test_accepted",
        TestFailed = "test_failed",
        /// The receiver has not answered yet.
        TestPending = "test_pending",
        BadForm = "bad_form",
        BadAddress = "bad_address",
        BadThresholds = "bad_thresholds",
        WrongCode = "wrong_code",
        Exists = "exists",
        TooMany = "too_many",
        NotFound = "not_found",
        NotYours = "not_yours",
        MutedByOthers = "muted_by_others",
        NotVerified = "not_verified",
        /// It is muted or disabled.
        GetsNothing = "gets_nothing",
        VerifiedAlready = "verified_already",
        Wait = "wait",
        Unavailable = "unavailable",
    }
}

impl PortalNotice {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::Added
            | Self::Asked
            | Self::Verified
            | Self::Removed
            | Self::Muted
            | Self::Unmuted
            | Self::Changed
            | Self::TestAccepted
            | Self::TestFailed
            | Self::TestPending => StatusCode::OK,
            Self::BadForm | Self::BadAddress | Self::BadThresholds => StatusCode::BAD_REQUEST,
            Self::WrongCode => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Exists
            | Self::TooMany
            | Self::NotYours
            | Self::MutedByOthers
            | Self::NotVerified
            | Self::GetsNothing
            | Self::VerifiedAlready => StatusCode::CONFLICT,
            Self::Wait => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
