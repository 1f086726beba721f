//! Decoding a format.

use super::fields::Table;
use super::format::TraceFormat;
use super::request::Decoded;
use super::source::Cut;
use super::{
    alibaba, arc, blkparse, cloudphysics, disksim, etw, fiu, flat_keys, hp_srt, iolog, lbn, lirs,
    meta_cdn, meta_kv, meta_tectonic, msr, oracle_general, spc, synthetic, systor, tencent_cbs,
    tencent_photo, twitter, vscsi,
};

impl TraceFormat {
    /// Decodes one line (without its end) or record of this format. For formats
    /// with a header the line is taken as the header. Pure and total.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn decode_one(self, record: &[u8]) -> Result<Decoded, String> {
        Decoder::new(self).decode(record)
    }
}

type Decode = dyn FnMut(&[u8]) -> Result<Decoded, String> + Send;

/// A format with its state between lines.
pub(super) struct Decoder {
    cut: Cut,
    decode: Box<Decode>,
}

impl Decoder {
    pub(super) fn new(format: TraceFormat) -> Self {
        match format {
            TraceFormat::MetaCdn => rows(meta_cdn::table(), meta_cdn::decode),
            TraceFormat::MetaKv => rows(meta_kv::table(), meta_kv::decode),
            TraceFormat::Twitter => lines(twitter::decode),
            TraceFormat::Spc => lines(spc::decode),
            TraceFormat::TencentPhoto => lines(tencent_photo::decode),
            TraceFormat::Lirs => lines(lirs::decode),
            TraceFormat::Arc => lines(arc::decode),
            TraceFormat::OracleGeneral => {
                records(oracle_general::RECORD_BYTES, oracle_general::decode)
            }
            TraceFormat::Cache2k => records(4, flat_keys::decode_be32),
            TraceFormat::Corda => records(8, flat_keys::decode_be64),
            TraceFormat::Zncache => records(4, flat_keys::decode_le32),
            TraceFormat::Alibaba => lines(alibaba::decode),
            TraceFormat::BlkparseQueued => lines(blkparse::decode_queued),
            TraceFormat::BlkparseDispatched => lines(blkparse::decode_dispatched),
            TraceFormat::CloudPhysics => rows(cloudphysics::table(), cloudphysics::decode),
            TraceFormat::DiskSim => lines(disksim::decode_ms),
            TraceFormat::Etw => {
                let mut etw = etw::Etw::default();
                lines(move |line: &[u8]| etw.decode(line))
            }
            TraceFormat::Fiu => lines(fiu::decode),
            TraceFormat::HpSrt => Decoder {
                cut: hp_srt::CUT,
                decode: Box::new(hp_srt::decode),
            },
            TraceFormat::Iolog => {
                let mut iolog = iolog::Iolog::default();
                lines(move |line: &[u8]| iolog.decode(line))
            }
            TraceFormat::Lbn => lines(lbn::decode),
            TraceFormat::MetaTectonic => rows(meta_tectonic::table(), meta_tectonic::decode),
            TraceFormat::MqSim => lines(disksim::decode_ns),
            TraceFormat::Msr => lines(msr::decode),
            TraceFormat::Systor => rows(systor::table(), systor::decode),
            TraceFormat::TencentCbs => lines(tencent_cbs::decode_sectors),
            TraceFormat::TencentCbsBytes => lines(tencent_cbs::decode_bytes),
            TraceFormat::VscsiV1 => records(vscsi::V1_BYTES, vscsi::decode_v1),
            TraceFormat::VscsiV2 => records(vscsi::V2_BYTES, vscsi::decode_v2),
            TraceFormat::Synthetic | TraceFormat::StandIn => {
                records(synthetic::RECORD_BYTES, synthetic::decode)
            }
        }
    }

    /// The framing of the content.
    pub(super) fn cut(&self) -> Cut {
        self.cut
    }

    pub(super) fn unit(&self) -> &'static str {
        match self.cut {
            Cut::Lines => "line",
            Cut::Records(_) | Cut::Sized { .. } => "record",
        }
    }

    pub(super) fn decode(&mut self, record: &[u8]) -> Result<Decoded, String> {
        (self.decode)(record)
    }
}

fn lines(decode: impl FnMut(&[u8]) -> Result<Decoded, String> + Send + 'static) -> Decoder {
    Decoder {
        cut: Cut::Lines,
        decode: Box::new(decode),
    }
}

fn records(bytes: usize, decode: fn(&[u8]) -> Result<Decoded, String>) -> Decoder {
    Decoder {
        cut: Cut::Records(bytes),
        decode: Box::new(decode),
    }
}

/// Lines of a table. The first one names the columns.
fn rows<const N: usize>(
    mut table: Table<N>,
    decode: fn([&str; N]) -> Result<Decoded, String>,
) -> Decoder {
    lines(move |line: &[u8]| match table.row(line)? {
        Some(row) => decode(row),
        None => Ok(Decoded::Nothing),
    })
}
