//! The commands of volumes.

use floe::config::VolumeSettings;
use floe::volume::{DetachError, OpenVolumesError, ResizeError, Volume, VolumeCache, VolumeError};

use super::protocol::{Reply, Request, VolumeReport};
use crate::frontend::{Host, OpenBacking};

/// The cache of volumes, and the way to open backing devices.
pub(super) struct Volumes {
    cache: VolumeCache,
    open: Option<OpenBacking>,
}

/// Why a command failed.
enum Failed {
    /// The command cannot be carried out as it is.
    Usage(String),
    /// A device failed.
    Environment(String),
}

impl From<VolumeError> for Failed {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::Volatile { .. } => Failed::Usage(error.to_string()),
            error => Failed::Environment(error.to_string()),
        }
    }
}

impl From<ResizeError> for Failed {
    fn from(error: ResizeError) -> Self {
        match error {
            ResizeError::Volume(error) => error.into(),
            ResizeError::Device(_) | ResizeError::Fixed { .. } => {
                Failed::Environment(error.to_string())
            }
            ResizeError::Shrinks { .. } | ResizeError::DirtyPastEnd { .. } => {
                Failed::Usage(format!("{error} (--shrink)"))
            }
            error => Failed::Usage(error.to_string()),
        }
    }
}

impl Volumes {
    pub(super) fn new(host: &Host) -> Option<Self> {
        Some(Volumes {
            cache: host.volumes.clone()?,
            open: host.open_backing.clone(),
        })
    }

    /// Volumes to which none can be attached.
    #[cfg(test)]
    pub(super) fn over(cache: VolumeCache) -> Self {
        Volumes { cache, open: None }
    }

    pub(super) async fn carry_out(&self, request: Request) -> Reply {
        match self.try_carry_out(request).await {
            Ok(reply) => reply,
            Err(Failed::Usage(message)) => Reply::Failed {
                is_usage: true,
                message,
            },
            Err(Failed::Environment(message)) => Reply::Failed {
                is_usage: false,
                message,
            },
        }
    }

    async fn try_carry_out(&self, request: Request) -> Result<Reply, Failed> {
        let volumes = match request {
            Request::Scrub { rate } => return Ok(Reply::Scrubbed(self.cache.scrub(rate).await?)),
            Request::Resize {
                name,
                size,
                allow_loss,
            } => {
                let resized = match name {
                    Some(name) => self.cache.resize_volume(&name, size, allow_loss).await?,
                    None => self.cache.resize(size).await?,
                };
                return Ok(Reply::Resized(resized));
            }
            // These are not about volumes.
            Request::Purge { .. }
            | Request::Cached { .. }
            | Request::Warm { .. }
            | Request::Pin { .. }
            | Request::Unpin { .. }
            | Request::Pins => Vec::new(),
            Request::Status { name } => self.some(name.as_deref())?,
            Request::Flush { name } => {
                let volumes = self.some(name.as_deref())?;
                for volume in &volumes {
                    volume.clean().await?;
                }
                volumes
            }
            Request::Mode { name, mode } => {
                let volumes = self.some(Some(&name))?;
                for volume in &volumes {
                    volume.set_mode(mode).await?;
                    tracing::info!(volume = name, %mode, "the mode has changed");
                }
                volumes
            }
            Request::Attach { name, settings } => vec![self.attach(&name, *settings).await?],
            Request::Detach { name, dirty } => {
                let detached = self.cache.detach(&name, dirty).await;
                detached.map_err(|error| match error {
                    DetachError::NotAttached(_) => Failed::Usage(error.to_string()),
                    DetachError::Volume(error) => error.into(),
                })?;
                Vec::new()
            }
        };
        Ok(Reply::Volumes(volumes.iter().map(report).collect()))
    }

    async fn attach(&self, name: &str, settings: VolumeSettings) -> Result<Volume, Failed> {
        let open = self.open.as_ref();
        let open = open.ok_or_else(|| Failed::Usage("volumes cannot be attached".into()))?;
        let config = settings.config();
        let backing = open.call(settings).await;
        let backing = backing.map_err(|error| Failed::Environment(error.to_string()))?;
        let attached = self.cache.attach(name, backing, &config).await;
        let volume = attached.map_err(|error| match error {
            OpenVolumesError::InUse(_)
            | OpenVolumesError::NameTooLong(..)
            | OpenVolumesError::TooManyVolumes(_)
            | OpenVolumesError::Config(_) => Failed::Usage(error.to_string()),
            OpenVolumesError::Volume(error) => error.into(),
            error => Failed::Environment(error.to_string()),
        })?;
        tracing::info!(volume = name, mode = %config.mode, "the volume is attached");
        Ok(volume)
    }

    /// The volume of this name, or all of them.
    fn some(&self, name: Option<&str>) -> Result<Vec<Volume>, Failed> {
        let mut volumes = self.cache.volumes();
        if let Some(name) = name {
            volumes.retain(|volume| volume.name() == name);
            if volumes.is_empty() {
                return Err(Failed::Usage(format!("volume {name} is not attached")));
            }
        }
        Ok(volumes)
    }
}

fn report(volume: &Volume) -> VolumeReport {
    VolumeReport {
        status: volume.status(),
        usage: volume.usage(),
    }
}
