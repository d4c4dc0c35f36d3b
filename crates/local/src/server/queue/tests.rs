//! Turns, bounds and jobs whose client went away.

use std::sync::Arc;

use super::*;

struct Job {
    name: &'static str,
    is_abandoned: bool,
}

impl QueuedJob for Job {
    fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }
}

fn job(name: &'static str) -> Job {
    Job { name, is_abandoned: false }
}

fn abandoned_job(name: &'static str) -> Job {
    Job { name, is_abandoned: true }
}

fn root(name: &str) -> Client {
    Client::Root(name.to_owned())
}

fn pop_names(queue: &FairQueue<Job>, count: usize) -> Vec<&'static str> {
    (0..count).filter_map(|_| queue.pop()).map(|job| job.name).collect()
}

#[test]
fn clients_take_turns_whatever_they_have_waiting() {
    let queue = FairQueue::new(16);
    for name in ["a1", "a2", "a3", "a4"] {
        queue.push(root("a"), job(name)).unwrap();
    }
    queue.push(root("b"), job("b1")).unwrap();
    queue.push(Client::Connection(1), job("c1")).unwrap();
    queue.push(Client::Connection(1), job("c2")).unwrap();
    assert_eq!(pop_names(&queue, 7), ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]);
}

#[test]
fn a_client_that_was_served_stands_behind_the_others() {
    let queue = FairQueue::new(16);
    queue.push(root("a"), job("a1")).unwrap();
    queue.push(root("b"), job("b1")).unwrap();
    assert_eq!(pop_names(&queue, 1), ["a1"]);
    queue.push(root("a"), job("a2")).unwrap();
    assert_eq!(pop_names(&queue, 2), ["b1", "a2"]);
}

#[test]
fn a_full_queue_refuses() {
    let queue = FairQueue::new(2);
    queue.push(root("a"), job("a1")).unwrap();
    queue.push(root("b"), job("b1")).unwrap();
    assert_eq!(queue.push(root("c"), job("c1")), Err(QueueRejection::Full));
    assert_eq!(pop_names(&queue, 1), ["a1"]);
    assert_eq!(queue.push(root("c"), job("c1")), Ok(()));
}

#[test]
fn one_client_leaves_room_for_another() {
    let queue = FairQueue::new(4);
    queue.push(root("a"), job("a1")).unwrap();
    queue.push(root("a"), job("a2")).unwrap();
    assert_eq!(queue.push(root("a"), job("a3")), Err(QueueRejection::ClientShareFull));
    assert_eq!(queue.push(root("b"), job("b1")), Ok(()));
}

#[test]
fn a_client_that_went_away_is_skipped_and_takes_no_place() {
    let queue = FairQueue::new(2);
    queue.push(root("a"), abandoned_job("a1")).unwrap();
    queue.push(root("b"), abandoned_job("b1")).unwrap();
    queue.push(root("a"), job("a2")).unwrap();
    assert_eq!(queue.queued_jobs(), 1);
    queue.push(root("b"), abandoned_job("b2")).unwrap();
    queue.push(root("b"), job("b3")).unwrap();
    assert_eq!(pop_names(&queue, 2), ["a2", "b3"]);
}

#[test]
fn a_closed_queue_gives_back_what_waits_and_lets_the_worker_go() {
    let queue = Arc::new(FairQueue::new(4));
    let worker = std::thread::spawn({
        let queue = Arc::clone(&queue);
        move || queue.pop().is_none()
    });
    let given_back = queue.close();
    assert!(given_back.is_empty() && worker.join().unwrap());
    assert_eq!(queue.push(root("a"), job("a1")), Err(QueueRejection::Closed));

    let queue = FairQueue::new(4);
    queue.push(root("a"), job("a1")).unwrap();
    queue.push(root("b"), job("b1")).unwrap();
    assert_eq!(queue.close().len(), 2);
    assert!(queue.pop().is_none());
}
