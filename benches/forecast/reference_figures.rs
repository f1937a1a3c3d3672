//! What the reference implementation of the method measures on the same series, at the same probability.

use super::evaluation::Figures;

/// The reference's figures by source.
pub const REFERENCE: [(&str, Figures); 5] = [
    (
        "nab",
        Figures {
            cases: 1_068,
            brier: 0.099,
            precision: 0.924,
            recall: 0.866,
            recall_2h: 0.704,
            lead_h: 7.06,
            false_per_30d: 0.702,
            time_error_h: 0.87,
        },
    ),
    (
        "akl",
        Figures {
            cases: 5_289,
            brier: 0.071,
            precision: 0.956,
            recall: 0.959,
            recall_2h: 0.862,
            lead_h: 7.187,
            false_per_30d: 0.414,
            time_error_h: 0.682,
        },
    ),
    (
        "flights",
        Figures {
            cases: 4_794,
            brier: 0.088,
            precision: 0.913,
            recall: 0.78,
            recall_2h: 0.644,
            lead_h: 4.6,
            false_per_30d: 0.776,
            time_error_h: 0.214,
        },
    ),
    (
        "ipsc",
        Figures {
            cases: 489,
            brier: 0.118,
            precision: 0.957,
            recall: 0.333,
            recall_2h: 0.197,
            lead_h: 2.393,
            false_per_30d: 0.123,
            time_error_h: 1.292,
        },
    ),
    (
        "synth",
        Figures {
            cases: 4_869,
            brier: 0.084,
            precision: 0.945,
            recall: 0.836,
            recall_2h: 0.664,
            lead_h: 6.091,
            false_per_30d: 0.456,
            time_error_h: 0.974,
        },
    ),
];
